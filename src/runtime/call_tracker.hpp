// SPDX-License-Identifier: Apache-2.0
// The order of a box's host calls: what the library can see is wrong, it refuses before anything is enqueued.
#pragma once

#include <atomic>
#include <cstdint>

#include "protocol/mode.hpp"

namespace moetail::runtime {

/// One box's calls, as the host sees them. A call is opened by the first of push, publish, poll_slots and run, which fixes its
/// mode, batch and tail; run closes it; its output must be consumed before the next one opens.
class CallTracker {
 public:
  /// Marks the box as used by this thread for one host call; a second thread meanwhile is an Error(Code::busy).
  class Use {
   public:
    Use(CallTracker& tracker, int rank);
    ~Use() { tracker_.in_use_.clear(std::memory_order_release); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    CallTracker& tracker_;
  };

  /// What opening the call, or continuing an open one, would give: the call's mode. Changes nothing. `what` names the host call in
  /// errors. Throws Code::call_order: another tail, batch or mode than the open call's, or the last output is not consumed.
  Mode check_open(const char* what, const void* tail, int batch, Mode requested, Mode resolved) const;
  /// The same, and does it.
  Mode open(const char* what, const void* tail, int batch, Mode requested, Mode resolved);
  bool is_open() const { return open_; }
  Mode mode() const { return mode_; }

  void set_pushed(bool on_side_stream) {
    pushed_ = true;
    pushed_on_side_ = on_side_stream;
  }
  bool is_pushed() const { return open_ && pushed_; }
  bool is_pushed_on_side() const { return is_pushed() && pushed_on_side_; }
  /// The buffer that push was given for the open call, or null.
  const std::uint16_t* remembered_shared() const { return open_ ? shared_ : nullptr; }
  void remember_shared(const std::uint16_t* shared) { shared_ = shared; }

  /// Closes the open call; returns its number, from 1 on.
  std::uint64_t close();
  /// Throws Code::call_order unless `call` is the latest call and its output is still there.
  void consume(const char* what, std::uint64_t call);

  /// After recovery: no call is open and nothing is left to consume. Old views stay refused.
  void reset();

 private:
  friend class Use;
  std::atomic_flag in_use_ = ATOMIC_FLAG_INIT;
  bool open_ = false;
  bool pushed_ = false;
  bool pushed_on_side_ = false;
  bool unconsumed_ = false;
  Mode mode_ = Mode::automatic;
  int batch_ = 0;
  const void* tail_ = nullptr;
  const std::uint16_t* shared_ = nullptr;
  std::uint64_t calls_ = 0;
};

}  // namespace moetail::runtime
