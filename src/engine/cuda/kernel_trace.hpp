// SPDX-License-Identifier: Apache-2.0
// What traced tails of a device left in its memory, as spans on one time line: each SM counts cycles of its own, from another moment.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "base/trace.hpp"
#include "engine/cuda/memory.hpp"
#include "engine/cuda/stream.hpp"
#include "kernels/trace_slot.hpp"

namespace moetail::cuda {

/// What one rank's warps have written, by call.
struct TracedRank {
  int rank = 0;
  std::vector<std::pair<int, kernels::TraceSlot>> slots;  ///< with block * kTraceWarps + warp
};

/// One rank's slots on the device, which keep the latest kTraceCalls calls.
class TraceSlots {
 public:
  TraceSlots(ContextRef context, const Stream& stream, int rank);
  kernels::TraceSlot* device() const { return memory_.as<kernels::TraceSlot>(); }
  /// What was written since the last time; the slots are empty from now on. `stream` is synchronized.
  TracedRank take(const Stream& stream);

 private:
  int rank_;
  DeviceMemory memory_;
};

/// Spans of what ranks of one device have written, a warp's in a row, and the moment of the GPU's timer that their times count from. A span's
/// thread is block * kTraceWarps + warp.
///
/// The SMs' clocks run at one rate, which is fitted to the pairs of clock and timer that every warp leaves at its end. The timer ticks coarsely
/// and is never ahead of time, so of all pairs of an SM the one with the latest timer says best when its clock began.
struct TracedSpans {
  kernels::u64 origin_ns = 0;
  std::vector<Trace::Span> spans;
};
TracedSpans spans_of(std::span<const TracedRank> ranks);

}  // namespace moetail::cuda
