// SPDX-License-Identifier: Apache-2.0
// The waiting half of the protocol's memory policy on a GPU: when a wait looks around, what it looks at, and the fault that it ends
// in. One text for the library's kernels and for users' own; they differ in where they find their rank.
//
// A `Rank` provides
//   i32 rank(), i32 ranks(), i32 layer()      who waits, of how many, in which layer
//   FaultCell* fault_cell()
//   u64* poison_of(i32 rank)                  that rank's poison word
//   u64 deadline_ns(bool is_first_call)       0: none
//   u64 epoch()                               of the call that waits: asked for by what is rare
// and, out of line, so that the rare paths cost the hot one no registers,
//   WaitVerdict look_around(Spot, u64 elapsed_ns)             which calls look_around_of
//   void raise_fault(FaultKind, Spot, u64 elapsed_ns)         which calls raise_fault_of
#pragma once

#include "device/global.hpp"
#include "protocol/fault.hpp"
#include "protocol/ring.hpp"
#include "protocol/wait.hpp"

namespace moetail::device {

using protocol::FaultCell;
using protocol::FaultKind;
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
template <class Rank>
MOETAIL_DEVICE void raise_fault_of(const Rank& me, FaultKind kind, const Spot& spot, u64 elapsed_ns) {
  u64* poison = me.poison_of(me.rank());
  const u64 mine = static_cast<u64>(me.rank()) + 1;
  u64 seen = compare_swap_acq_rel_sys(poison, 0, mine | kRecorded);
  bool records = seen == 0;
  if (!records && (seen & kRecorded) == 0) {
    // A peer's name is there already: this wait ended because of it, whatever it saw itself.
    records = compare_swap_acq_rel_sys(poison, seen, seen | kRecorded) == seen;
    kind = FaultKind::poisoned;
  }
  const u64 blamed = seen == 0 ? mine : static_cast<u64>(static_cast<u32>(seen));
  if (!records) return;
  const u64 epoch = me.epoch();
  protocol::FaultRecord record;
  record.kind = kind;
  record.site = spot.site;
  record.field = spot.field;
  record.rank = me.rank();
  record.peer = kind == FaultKind::poisoned ? blamed_rank(blamed) : spot.peer;
  record.layer = me.layer();
  record.token = spot.token;
  record.k = spot.k;
  record.slot = protocol::slot_of(epoch);
  record.epoch = epoch;
  record.expected = spot.expected;
  record.seen = spot.seen;
  record.elapsed_ns = elapsed_ns;
  FaultCell* cell = me.fault_cell();
  cell->record = record;
  store_release_sys(&cell->state, FaultCell::kWritten);
  for (i32 i = 1; i < me.ranks(); ++i)
    compare_swap_acq_rel_sys(me.poison_of((me.rank() + i) % me.ranks()), 0, blamed);
}

/// One look around of a wait that has lasted `elapsed_ns`.
template <class Rank>
MOETAIL_DEVICE WaitVerdict look_around_of(const Rank& me, const Spot& spot, u64 elapsed_ns) {
  if (load_relaxed_sys(me.poison_of(me.rank())) != 0) {
    me.raise_fault(FaultKind::poisoned, spot, 0);
    return WaitVerdict::ended;
  }
  if (load_relaxed_sys(&me.fault_cell()->stop) != 0) {
    me.raise_fault(FaultKind::aborted, spot, 0);
    return WaitVerdict::ended;
  }
  const u64 deadline = me.deadline_ns(me.epoch() == 0);
  return deadline != 0 && elapsed_ns >= deadline ? WaitVerdict::expired : WaitVerdict::go_on;
}

/// protocol::wait_until's policy, one object a wait.
template <class Rank>
class WaiterOf {
 public:
  MOETAIL_DEVICE explicit WaiterOf(const Rank& me) : me_(me) {}

  MOETAIL_DEVICE u32 ticket() { return 0; }
  MOETAIL_DEVICE WaitVerdict pause(u32 spins, u32, int, const Spot& spot) {
    if (__builtin_expect(spins % kSpinsPerLook != kSpinsPerLook - 1, 1)) return WaitVerdict::go_on;
    const u64 now = global_time_ns();
    if (begin_ns_ == 0) begin_ns_ = now;
    return me_.look_around(spot, now - begin_ns_);
  }
  MOETAIL_DEVICE void raise(FaultKind kind, const Spot& spot) {
    me_.raise_fault(kind, spot, global_time_ns() - begin_ns_);
  }

 private:
  Rank me_;
  u64 begin_ns_ = 0;  ///< of the first look: the spins before it are not counted
};

}  // namespace moetail::device
