// SPDX-License-Identifier: Apache-2.0
// What the CPU engine keeps of one rank's box besides the mailboxes: the fault cell, the stop word, deadlines
// and test hooks.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>

#include "base/trace.hpp"
#include "engine/cpu/hooks.hpp"
#include "protocol/fault.hpp"
#include "protocol/mailbox.hpp"

namespace moetail::cpu {

/// One fault record, written by the first that claims it, readable at any time by the host.
class FaultCell {
 public:
  /// Stores `record` if no record is there yet. True for the one that did.
  bool record(const protocol::FaultRecord& record) {
    int expected = kEmpty;
    if (!state_.compare_exchange_strong(expected, kWriting, std::memory_order_acq_rel)) return false;
    record_ = record;
    state_.store(kWritten, std::memory_order_release);
    return true;
  }
  std::optional<protocol::FaultRecord> get() const {
    if (state_.load(std::memory_order_acquire) != kWritten) return std::nullopt;
    return record_;
  }
  /// Only while no launch of the box runs.
  void clear() { state_.store(kEmpty, std::memory_order_release); }

 private:
  static constexpr int kEmpty = 0, kWriting = 1, kWritten = 2;
  std::atomic<int> state_ = kEmpty;
  protocol::FaultRecord record_;
};

struct BoxState {
  protocol::BoxView view;
  FaultCell fault;
  std::atomic<bool> stop = false;
  std::chrono::nanoseconds deadline{0};        ///< 0: none
  std::chrono::nanoseconds first_deadline{0};  ///< of the first call
  int spins_before_park = 0;  ///< few where ranks outnumber cores: a spinning rank keeps another from running
  int layer = 0;              ///< label of the latest tail, for the fault of whoever consumes its output
  Hooks* hooks = nullptr;
  Trace* trace = nullptr;  ///< null: nothing is recorded
};

}  // namespace moetail::cpu
