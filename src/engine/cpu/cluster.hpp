// SPDX-License-Identifier: Apache-2.0
// A cluster: the thread that does one part of a rank's launch, as a cluster of thread blocks does on a GPU.
// It is the memory policy of the protocol, with waits that spin briefly, then park, and end by deadline,
// poison or abort.
#pragma once

#include <chrono>

#include "engine/cpu/box_state.hpp"
#include "engine/cpu/memory.hpp"

namespace moetail::cpu {

class Cluster : public HostMemory {
 public:
  /// Which call a launch belongs to: the one that finds the epoch as it is, or, for consumers, the one just served.
  enum class Serves { next_call, last_call };

  /// Part `index` of `count` of a launch on `box`. Reads the epoch, which a tail advances only when all its parts are done.
  Cluster(BoxState& box, int index, int count, int layer, Serves serves = Serves::next_call);

  BoxState& box() const { return box_; }
  const protocol::BoxView& view() const { return box_.view; }
  int index() const { return index_; }
  int count() const { return count_; }
  u64 epoch() const { return epoch_; }
  int slot() const { return protocol::slot_of(epoch_); }

  /// A phase begins here, for the trace; null: the last one ends.
  void mark(const char* name) const {
    if (box_.trace != nullptr) box_.trace->mark(name, view().rank, layer_, epoch_ + 1);
  }

  /// Passes a site: false when the launch has to end here, because a test hook says so or the box is
  /// poisoned.
  bool reach(protocol::Site site);
  /// The site that was passed last.
  protocol::Site site() const { return site_; }
  bool is_poisoned() const { return load(view().control(protocol::Control::poison)) != 0; }

  /// Wakes what may be parked on what was just published: one rank, or all of them.
  void ring(int peer);
  void ring_all();

  // The waiting half of the memory policy (protocol/wait.hpp).
  u64 ticket() const { return load(view().control(protocol::Control::bell)); }
  protocol::WaitVerdict pause(u32 spins, u64 ticket, int missing, const protocol::Spot& spot);
  void raise(protocol::FaultKind kind, const protocol::Spot& spot);

 private:
  void park(u64 ticket, int missing, std::chrono::nanoseconds limit);
  void poison_everyone();

  BoxState& box_;
  const int index_;
  const int count_;
  const int layer_;
  const u64 epoch_;
  protocol::Site site_ = protocol::Site::none;
  std::chrono::steady_clock::time_point wait_begin_;
};

/// Ends all waits of this rank from outside of its threads.
void abort_waits(BoxState& box);

}  // namespace moetail::cpu
