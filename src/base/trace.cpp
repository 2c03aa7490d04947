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
  spans.insert(spans.end(), device_spans_.begin(), device_spans_.end());
  return spans;
}

void Trace::add_device(std::uint64_t origin_ns, std::vector<Span> spans) {
  if (device_spans_.empty()) device_origin_ns_ = origin_ns;
  const double later_us =
      static_cast<double>(static_cast<std::int64_t>(origin_ns - device_origin_ns_)) / 1000;
  for (Span& span : spans) {
    span.begin_us += later_us;
    span.end_us += later_us;
    device_spans_.push_back(span);
  }
}

}  // namespace moetail
