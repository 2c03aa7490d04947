// SPDX-License-Identifier: Apache-2.0
// A tail's clock marks, in kernels built with MOETAIL_TRACE=1: kept in registers until the warp ends. Nothing of it is left in others.
#pragma once

#include "device/clock.hpp"
#include "kernels/config.hpp"
#include "kernels/trace_slot.hpp"

namespace moetail::kernels {

#if defined(MOETAIL_TRACE)
inline constexpr bool kTraces = true;
static_assert(kBlocks <= kTraceBlocks && kThreads / 32 <= kTraceWarps,
              "a trace has no slots for so many warps");
#else
inline constexpr bool kTraces = false;
#endif

template <bool kOn>
struct MarksOf {
  u32 clock[kMarks] = {};

  template <Mark kMark>
  MOETAIL_DEVICE void set() {
    clock[static_cast<i32>(kMark)] = static_cast<u32>(device::clock_cycles()) | 1;
  }
  /// One lane of a warp, at its end. `slots`: the rank's. `call`: from 1.
  MOETAIL_DEVICE void store(TraceSlot* slots, u64 call, i32 layer, i32 block, i32 warp) const {
    static_assert(sizeof(TraceSlot) == 5 * sizeof(device::Line));
    device::Line* to = reinterpret_cast<device::Line*>(slots + trace_slot_at(call, block, warp));
    const u64 now = device::clock_cycles(), time = device::global_time_ns();
    const auto low = [](u64 word) { return static_cast<u32>(word); };
    const auto high = [](u64 word) { return static_cast<u32>(word >> 32); };
    device::store_weak(to, {{low(call), high(call), low(time), high(time)}});
    device::store_weak(to + 1, {{low(now), high(now), device::sm_number(), static_cast<u32>(layer)}});
    device::store_weak(to + 2, {{clock[0], clock[1], clock[2], clock[3]}});
    device::store_weak(to + 3, {{clock[4], clock[5], clock[6], clock[7]}});
    device::store_weak(to + 4, {{clock[8], clock[9], clock[10], 0}});
  }
};
template <>
struct MarksOf<false> {
  template <Mark kMark>
  MOETAIL_DEVICE void set() {}
  MOETAIL_DEVICE void store(TraceSlot*, u64, i32, i32, i32) const {}
};
using Marks = MarksOf<kTraces>;

}  // namespace moetail::kernels
