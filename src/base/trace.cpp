// SPDX-License-Identifier: Apache-2.0
#include "base/trace.hpp"

#include <algorithm>
#include <map>

namespace moetail {

int Trace::this_thread() noexcept {
  static std::atomic<int> threads = 0;
  static thread_local const int index = threads.fetch_add(1, std::memory_order_relaxed);
  return index;
}

std::size_t Trace::dropped() const {
  return std::max(next_.load(std::memory_order_relaxed), marks_.size()) - marks_.size();
}

std::vector<Trace::Span> Trace::spans() const {
  const std::size_t count = std::min(next_.load(std::memory_order_relaxed), marks_.size());
  const auto us = [&](Clock::time_point time) {
    return std::chrono::duration<double, std::micro>(time - begin_).count();
  };
  std::vector<Span> spans;
  std::map<int, const Mark*> open;
  // A thread's marks are in its own order: each took its place before the next was made.
  for (std::size_t i = 0; i < count; ++i) {
    const Mark& mark = marks_[i];
    const Mark*& last = open[mark.thread];
    if (last != nullptr)
      spans.push_back(
          {last->name, last->thread, last->rank, last->layer, last->call, us(last->time), us(mark.time)});
    last = mark.name == nullptr ? nullptr : &mark;
  }
  return spans;
}

}  // namespace moetail
