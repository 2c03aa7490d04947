// SPDX-License-Identifier: Apache-2.0
// Where the time of a call goes: on the CPU engine passes of synchronisation sites, on the CUDA engine the phases of each warp of a tail. Ranks
// record into one buffer; nothing is written or printed here.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace moetail {

class Trace {
 public:
  /// On a GPU: calls of a box that are kept until World::synchronize hands them over, and warps that a block has at most.
  static constexpr int kDeviceCalls = 128, kBlockWarps = 17;

  /// What a thread did from one mark of its to the next.
  struct Span {
    const char* name =
        nullptr;     ///< a site's (protocol::site_name), or "dot"; on a GPU a phase's (kernels::phase_name)
    int thread = 0;  ///< counts the threads that recorded, from 0; on a GPU block * kBlockWarps + warp
    int rank = 0;
    int layer = 0;           ///< the label of the call's tail, 0 on side streams
    std::uint64_t call = 0;  ///< 1 for the first of the box
    double begin_us = 0,
           end_us = 0;  ///< since the trace was made or cleared; on a GPU since about the first tail's begin
  };

  /// `capacity`: marks that are kept, 40 bytes each; a layer has about 15 for each thread of each rank. Later ones are counted only.
  explicit Trace(std::size_t capacity = std::size_t{1} << 20) : marks_(capacity) { clear(); }

  /// From any thread. `name`: a literal; null ends the thread's last span.
  void mark(const char* name, int rank, int layer, std::uint64_t call) noexcept {
    const std::size_t place = next_.fetch_add(1, std::memory_order_relaxed);
    if (place < marks_.size()) marks_[place] = {name, this_thread(), rank, layer, call, Clock::now()};
  }

  // These only while no launch runs: after World::synchronize.

  void clear() {
    next_.store(0, std::memory_order_relaxed);
    begin_ = Clock::now();
    device_spans_.clear();
  }
  /// Spans of a device, whose times count from `origin_ns` of its own timer.
  void add_device(std::uint64_t origin_ns, std::vector<Span> spans);
  /// Marks that found no room since the last clear.
  std::size_t dropped() const;
  /// In the order of their begin on each thread; a device's last. A span that nothing ended is left out.
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
  std::vector<Span> device_spans_;
  std::uint64_t device_origin_ns_ = 0;  ///< what their times count from
};

}  // namespace moetail
