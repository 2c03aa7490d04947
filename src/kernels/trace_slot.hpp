// SPDX-License-Identifier: Apache-2.0
// What a traced tail leaves for the host: the clock of each warp where its phases end. The kernel writes it and the engine reads it
// (engine/cuda/kernel_trace.hpp); a kernel that is not built with MOETAIL_TRACE has nothing of it.
#pragma once

#include "protocol/words.hpp"

namespace moetail::kernels {

using protocol::i32;
using protocol::u32;
using protocol::u64;

/// Where a phase of a tail ends, in the order in which a warp comes by. A tail that walks over several row blocks or token tiles keeps the
/// last one's.
enum class Mark : i32 {
  begin,      ///< the block's first instruction
  ready,      ///< its prologue is over, and the launch before this one complete
  published,  ///< front: this warp's part of the rank's partial has left
  pushed,     ///< front: its part of the shared shards
  prepared,   ///< its part of the rows that the rank sums once
  rearmed,    ///< its part of the previous call's slot
  polled,     ///< what it polls is there, summed and made the operand
  met,        ///< all warps of the block have come to the product
  sent,       ///< its partial products have left for their owners
  exchanged,  ///< all slices' are here
  put,        ///< its output columns have left
};
inline constexpr i32 kMarks = 11;

/// The phase that ends at `mark`.
constexpr const char* phase_name(Mark mark) {
  constexpr const char* kNames[kMarks] = {"",      "prologue", "publication", "push",     "sums",  "re-arm",
                                          "polls", "meeting",  "product",     "exchange", "output"};
  return kNames[static_cast<i32>(mark)];
}

/// One warp of one call.
struct alignas(16) TraceSlot {
  u64 call = 0;       ///< 1 for the first of the box; 0: nothing was written
  u64 end_ns = 0;     ///< the GPU's timer as the warp ends
  u64 end_clock = 0;  ///< its SM's clock then
  u32 sm = 0;
  i32 layer = 0;           ///< label
  u32 clock[kMarks] = {};  ///< of Mark, the low half of the SM's clock; 0: it did not come by
};

// Slots of one rank: calls take their place in turns.
inline constexpr int kTraceCalls = 128, kTraceBlocks = 256, kTraceWarps = 17;
constexpr u64 trace_slot_at(u64 call, int block, int warp) {
  return (call % kTraceCalls * kTraceBlocks + static_cast<u64>(block)) * kTraceWarps + static_cast<u64>(warp);
}
inline constexpr u64 kTraceBlockSlots = static_cast<u64>(kTraceBlocks) * kTraceWarps;  ///< of one call
inline constexpr u64 kTraceSlots = kTraceCalls * kTraceBlockSlots;

}  // namespace moetail::kernels
