// SPDX-License-Identifier: Apache-2.0
// A function that can be left in the middle and entered again. The protocol's waits are ordinary calls, which a C++20 coroutine cannot
// suspend across; a stack of its own can.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>
#include <memory>

namespace moetail::explore {

class Fiber {
 public:
  Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Makes `body` what the next resume begins. What a body that was left in the middle had on its stack is forgotten, not destroyed: it
  /// may hold nothing but plain values.
  void start(std::function<void()> body);
  /// From outside: runs until the body leaves or ends.
  void resume();
  /// From inside: back to whoever resumed.
  void leave();
  bool has_ended() const { return ended_; }

 private:
  static void enter(unsigned low, unsigned high);

  static constexpr std::size_t kStackBytes = 64 * 1024;
  std::unique_ptr<char[]> stack_;
  ucontext_t inside_{};
  ucontext_t outside_{};
  std::function<void()> body_;
  bool ended_ = true;
};

}  // namespace moetail::explore
