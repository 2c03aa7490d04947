// SPDX-License-Identifier: Apache-2.0
// The waiting half of the protocol's memory policy on a GPU: one thread's waits, their deadline, and the fault they end in.
#pragma once

#include "kernels/view.hpp"
#include "protocol/wait.hpp"

namespace moetail::kernels {

using protocol::FaultKind;
using protocol::Site;
using protocol::Spot;
using protocol::WaitVerdict;

// Clock, poison and stop word are looked at once in so many spins. A spin is one trip to L2, 0.3 to 0.7 us on an H200, a look
// costs a trip over the bus to the stop word: an unlucky wait ends about 0.2 ms late.
inline constexpr u32 kSpinsPerLook = 256;

// The poison word's low half names the rank that faulted first, as 1 + rank. The launch that writes the fault record sets this
// bit as it claims the right to: the record's own memory is the host's, where not every bus has atomics.
inline constexpr u64 kRecorded = u64{1} << 32;

MOETAIL_DEVICE i32 blamed_rank(u64 poison) {
  return static_cast<i32>(static_cast<u32>(poison)) - 1;
}

/// Writes the record unless this box has one, poisons the own box and tells every peer who is to blame.
MOETAIL_COLD void raise_fault(const RankArgs& args, u64 epoch, FaultKind kind, Spot spot, u64 elapsed_ns) {
  const View view{args};
  u64* poison = view.control<Control::poison>();
  const u64 mine = static_cast<u64>(args.rank) + 1;
  u64 seen = device::compare_swap_acq_rel_sys(poison, 0, mine | kRecorded);
  bool records = seen == 0;
  if (!records && (seen & kRecorded) == 0) {
    // A peer's name is there already: this wait ended because of it, whatever it saw itself.
    records = device::compare_swap_acq_rel_sys(poison, seen, seen | kRecorded) == seen;
    kind = FaultKind::poisoned;
  }
  const u64 blamed = seen == 0 ? mine : static_cast<u64>(static_cast<u32>(seen));
  if (!records) return;
  protocol::FaultRecord record;
  record.kind = kind;
  record.site = spot.site;
  record.field = spot.field;
  record.rank = args.rank;
  record.peer = kind == FaultKind::poisoned ? blamed_rank(blamed) : spot.peer;
  record.layer = args.call.layer;
  record.token = spot.token;
  record.k = spot.k;
  record.slot = protocol::slot_of(epoch);
  record.epoch = epoch;
  record.expected = spot.expected;
  record.seen = spot.seen;
  record.elapsed_ns = elapsed_ns;
  args.fault->record = record;
  device::store_release_sys(&args.fault->state, FaultCell::kWritten);
  for (int i = 1; i < kRanks; ++i)
    device::compare_swap_acq_rel_sys(view.at<u64>((args.rank + i) % kRanks, kControlOffset<Control::poison>),
                                     0, blamed);
}

/// One look around of a wait that has lasted `elapsed_ns`.
MOETAIL_COLD WaitVerdict look_around(const RankArgs& args, u64 epoch, Spot spot, u64 elapsed_ns) {
  if (device::load_relaxed_sys(View{args}.control<Control::poison>()) != 0) {
    raise_fault(args, epoch, FaultKind::poisoned, spot, 0);
    return WaitVerdict::ended;
  }
  if (device::load_relaxed_sys(&args.fault->stop) != 0) {
    raise_fault(args, epoch, FaultKind::aborted, spot, 0);
    return WaitVerdict::ended;
  }
  const u64 deadline = epoch == 0 ? args.first_deadline_ns : args.deadline_ns;
  return deadline != 0 && elapsed_ns >= deadline ? WaitVerdict::expired : WaitVerdict::go_on;
}

/// The policy, one object a wait.
class Waiter {
 public:
  MOETAIL_DEVICE Waiter(const RankArgs& args, u64 epoch) : args_(args), epoch_(epoch) {}

  MOETAIL_DEVICE u32 ticket() { return 0; }
  MOETAIL_DEVICE WaitVerdict pause(u32 spins, u32, int, const Spot& spot) {
    if (__builtin_expect(spins % kSpinsPerLook != kSpinsPerLook - 1, 1)) return WaitVerdict::go_on;
    const u64 now = device::global_time_ns();
    if (begin_ns_ == 0) begin_ns_ = now;
    return look_around(args_, epoch_, spot, now - begin_ns_);
  }
  MOETAIL_DEVICE void raise(FaultKind kind, const Spot& spot) {
    raise_fault(args_, epoch_, kind, spot, device::global_time_ns() - begin_ns_);
  }

 private:
  const RankArgs& args_;
  u64 epoch_;
  u64 begin_ns_ = 0;  ///< of the first look: the spins before it are not counted
};

}  // namespace moetail::kernels
