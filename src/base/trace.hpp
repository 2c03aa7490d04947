// SPDX-License-Identifier: Apache-2.0
// Where the time of a call goes: passes of synchronisation sites, with thread and time. Ranks record into one buffer; nothing is written
// or printed here.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace moetail {

class Trace {
 public:
  /// What a thread did from one mark of its to the next.
  struct Span {
    const char* name = nullptr;  ///< a site's (protocol::site_name), or "dot"
    int thread = 0;              ///< counts the threads that recorded, from 0
    int rank = 0;
    int layer = 0;                    ///< the label of the call's tail, 0 on side streams
    std::uint64_t call = 0;           ///< 1 for the first of the box
    double begin_us = 0, end_us = 0;  ///< since the trace was made or cleared
  };

  /// `capacity`: marks that are kept, 40 bytes each; a layer has about 15 for each thread of each rank. Later ones are counted only.
  explicit Trace(std::size_t capacity = std::size_t{1} << 20) : marks_(capacity) { clear(); }

  /// From any thread. `name`: a literal; null ends the thread's last span.
  void mark(const char* name, int rank, int layer, std::uint64_t call) noexcept {
    const std::size_t place = next_.fetch_add(1, std::memory_order_relaxed);
    if (place < marks_.size()) marks_[place] = {name, this_thread(), rank, layer, call, Clock::now()};
  }

  // These three only while no launch runs: after World::synchronize.

  void clear() {
    next_.store(0, std::memory_order_relaxed);
    begin_ = Clock::now();
  }
  /// Marks that found no room since the last clear.
  std::size_t dropped() const;
  /// In the order of their begin on each thread. A span that nothing ended is left out.
  std::vector<Span> spans() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Mark {
    const char* name = nullptr;
    int thread = 0;
    int rank = 0;
    int layer = 0;
    std::uint64_t call = 0;
    Clock::time_point time;
  };
  static int this_thread() noexcept;

  std::vector<Mark> marks_;
  std::atomic<std::size_t> next_ = 0;
  Clock::time_point begin_;
};

}  // namespace moetail
