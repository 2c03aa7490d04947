// SPDX-License-Identifier: Apache-2.0
#include "verify/explore/fiber.hpp"

#include <cstdint>
#include <utility>

namespace moetail::explore {

Fiber::Fiber() : stack_(new char[kStackBytes]) {}

// makecontext passes ints only.
void Fiber::enter(unsigned low, unsigned high) {
  auto* fiber = reinterpret_cast<Fiber*>(static_cast<std::uintptr_t>(high) << 32 | low);
  fiber->body_();
  fiber->ended_ = true;
  fiber->leave();
}

void Fiber::start(std::function<void()> body) {
  body_ = std::move(body);
  ended_ = false;
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = stack_.get();
  inside_.uc_stack.ss_size = kStackBytes;
  inside_.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&inside_, reinterpret_cast<void (*)()>(&Fiber::enter), 2, static_cast<unsigned>(self),
              static_cast<unsigned>(self >> 32));
}

void Fiber::resume() {
  swapcontext(&outside_, &inside_);
}

void Fiber::leave() {
  swapcontext(&inside_, &outside_);
}

}  // namespace moetail::explore
