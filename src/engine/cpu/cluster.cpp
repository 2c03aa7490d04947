// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/cluster.hpp"

#include <algorithm>

#include "base/futex.hpp"

namespace moetail::cpu {
namespace {

using protocol::Control;
using protocol::FaultKind;
using protocol::FaultRecord;
using protocol::Spot;
using protocol::WaitVerdict;
using Clock = std::chrono::steady_clock;

// A parked thread looks around this often even if nobody rings: the bell is a hint, the data is the truth.
constexpr std::chrono::nanoseconds kParkSlice = std::chrono::milliseconds(20);
// Clock and poison are looked at once in so many spins; a look costs about 30 ns, a spin less.
constexpr u32 kSpinsPerLook = 256;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

std::atomic_ref<u64> strong(u64* word) {
  return std::atomic_ref<u64>(*word);
}

}  // namespace

Cluster::Cluster(BoxState& box, int index, int count, int layer, Serves serves)
    : box_(box),
      index_(index),
      count_(count),
      layer_(layer),
      epoch_(load(box.view.control(Control::epoch)) - (serves == Serves::last_call ? 1 : 0)) {}

bool Cluster::reach(protocol::Site site) {
  mark(protocol::site_name(site));
  site_ = site;
  if (box_.hooks != nullptr && !box_.hooks->at({view().rank, index_, site, epoch_})) return false;
  if (!is_poisoned()) return true;
  raise(FaultKind::poisoned, Spot{site});
  return false;
}

void Cluster::ring(int peer) {
  u64* bell = view().control_of(peer, Control::bell);
  // Sequentially consistent on both sides: the reader sets its target and looks at the bell, the ringer
  // counts the bell and looks at the target, so one of them sees the other.
  const u64 count = strong(bell).fetch_add(1, std::memory_order_seq_cst) + 1;
  if (count >= strong(view().control_of(peer, Control::bell_target)).load(std::memory_order_seq_cst))
    base::futex_wake_all(base::futex_word(bell));
}

void Cluster::ring_all() {
  for (int i = 0; i < view().ranks(); ++i) ring((view().rank + i) % view().ranks());
}

WaitVerdict Cluster::pause(u32 spins, u64 ticket, int missing, const Spot& spot) {
  if (spins == 0) wait_begin_ = Clock::now();
  const bool parks = spins >= static_cast<u32>(box_.spins_before_park);
  if (!parks && spins % kSpinsPerLook != 0) {
    relax();
    return WaitVerdict::go_on;
  }
  if (is_poisoned()) {
    raise(FaultKind::poisoned, spot);
    return WaitVerdict::ended;
  }
  if (box_.stop.load(std::memory_order_acquire)) {
    raise(FaultKind::aborted, spot);
    return WaitVerdict::ended;
  }
  const auto deadline = epoch_ == 0 ? box_.first_deadline : box_.deadline;
  const auto elapsed = Clock::now() - wait_begin_;
  if (deadline.count() > 0 && elapsed >= deadline) return WaitVerdict::expired;
  if (!parks) return WaitVerdict::go_on;
  const auto left = deadline.count() > 0 ? deadline - elapsed : kParkSlice;
  park(ticket, missing, std::min<std::chrono::nanoseconds>(left, kParkSlice));
  return WaitVerdict::go_on;
}

void Cluster::park(u64 ticket, int missing, std::chrono::nanoseconds limit) {
  constexpr u64 kNobodyParked = ~u64{0};
  u64* bell = view().control(Control::bell);
  u64* target = view().control(Control::bell_target);
  // Each missing publication rings once after its data, so nothing is complete before `missing` more rings.
  // Several clusters of one rank share the word: then every ring wakes.
  const u64 wanted = count_ == 1 ? ticket + static_cast<u64>(missing) : 0;
  strong(target).store(wanted, std::memory_order_seq_cst);
  const u64 now = strong(bell).load(std::memory_order_seq_cst);
  const bool nothing_new = count_ == 1 ? now < wanted : now == ticket;
  if (nothing_new) base::futex_wait(base::futex_word(bell), static_cast<u32>(now), limit);
  if (count_ == 1) strong(target).store(kNobodyParked, std::memory_order_seq_cst);
}

void Cluster::raise(FaultKind kind, const Spot& spot) {
  FaultRecord record;
  record.kind = kind;
  record.site = spot.site;
  record.field = spot.field;
  record.rank = view().rank;
  record.peer = spot.peer;
  record.layer = layer_;
  record.token = spot.token;
  record.k = spot.k;
  record.slot = slot();
  record.epoch = epoch_;
  record.expected = spot.expected;
  record.seen = spot.seen;
  if (kind == FaultKind::poisoned) record.peer = static_cast<int>(load(view().control(Control::poison))) - 1;
  if (kind == FaultKind::deadline) record.elapsed_ns = static_cast<u64>((Clock::now() - wait_begin_).count());
  box_.fault.record(record);
  poison_everyone();
}

void Cluster::poison_everyone() {
  const u64 mine = static_cast<u64>(view().rank) + 1;
  for (int peer = 0; peer < view().ranks(); ++peer) {
    // The first that faults is the one to blame; whoever finds a box poisoned passes that name on, not its
    // own.
    u64 clean = 0;
    const u64 known = load(view().control(Control::poison));
    strong(view().control_of(peer, Control::poison))
        .compare_exchange_strong(clean, known != 0 ? known : mine, std::memory_order_acq_rel);
    base::futex_wake_all(base::futex_word(view().control_of(peer, Control::bell)));
  }
}

void abort_waits(BoxState& box) {
  box.stop.store(true, std::memory_order_release);
  base::futex_wake_all(base::futex_word(box.view.control(Control::bell)));
}

}  // namespace moetail::cpu
