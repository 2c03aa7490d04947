// SPDX-License-Identifier: Apache-2.0
// Polls of one token, eight lanes a line: each lane loads what some ranks published of it, then sums one column. With a lane a line most have nothing
// to do while a few add up all ranks: 3.14 us a layer instead of 3.97 at T = 16, no difference at 8; of four tokens, whose lines take several
// passes, 5.1 instead of 3.6 (H200, 2026-11-30).
#pragma once

#include "kernels/deliver.hpp"

namespace moetail::kernels {

inline constexpr i32 kLineLanes = 8, kWarpLines = 32 / kLineLanes;
inline constexpr i32 kRanksALane = (kRanks + kLineLanes - 1) / kLineLanes;

/// Where this warp's lanes hand each other the lines of `rank`: kWarpLines of them side by side, so that eight lanes a line meet no bank twice.
MOETAIL_DEVICE u32 handed_lines(const Tail& tail, i32 rank) {
  return tail.shared + kShared.handed +
         static_cast<u32>((tail.warp * kRanks + rank) * kWarpLines) * protocol::kLineBytes;
}

/// All lanes of the warp, eight a line: column `tail.lane` % 8 of `line` of every rank's mailbox, summed in rank order. `on`: the lane's line is one;
/// the same for all eight. `own`: as for sum_ranks. False, in the whole warp, after a fault.
template <Region kRegion>
MOETAIL_DEVICE bool sum_column(const Tail& tail, Site site, bool on, i32 token, i32 line, float& sum,
                               const Line* own = nullptr) {
  const i32 part = tail.lane % kLineLanes, group = tail.lane / kLineLanes;
  bool there = true;
  if (on && part < kRanks) {
    const u8* from =
        reinterpret_cast<const u8*>(tail.view.mine<Line, kRegion>(tail.slot, part, token) + line);
    Line lines[kRanksALane];
    Waiter waiter = tail.waiter();
    Spot spot{site, -1, token};
    there = protocol::wait_until(waiter, spot, [&](Spot& where) {
#pragma unroll
      for (int i = 0; i < kRanksALane; ++i)
        lines[i] = device::load_relaxed_sys(
            reinterpret_cast<const Line*>(from + static_cast<u64>(i * kLineLanes) * kSourceBytes<kRegion>));
      int missing = 0;
#pragma unroll
      for (int i = 0; i < kRanksALane; ++i) {
        const i32 rank = part + i * kLineLanes;
        if (own != nullptr && rank == tail.args.rank) lines[i] = protocol::cleaned(*own);
        if (!protocol::has_empty(lines[i])) continue;
        if (missing++ == 0) where.peer = rank;
      }
      return missing;
    });
#pragma unroll
    for (int i = 0; i < kRanksALane; ++i)
      device::store_shared(
          handed_lines(tail, part + i * kLineLanes) + static_cast<u32>(group) * protocol::kLineBytes,
          lines[i]);
  }
  if (__ballot_sync(~0u, !there) != 0) return false;
  __syncwarp();
  const u32 at = static_cast<u32>(group) * protocol::kLineBytes + static_cast<u32>(part / 2) * 4;
#pragma unroll
  for (int r = 0; r < kRanks; ++r) {
    const u32 pair = device::load_shared(handed_lines(tail, r) + at);
    const float value = part % 2 == 0 ? device::low_float(pair) : device::high_float(pair);
    sum = r == 0 ? value : __fadd_rn(sum, value);
  }
  __syncwarp();
  return true;
}

/// set_operand, eight lanes a line: `x` is the lane's column.
MOETAIL_DEVICE void set_operand_column(const Tail& tail, bool on, i32 tile_token, i32 line, float x) {
  const i32 part = tail.lane % kLineLanes;
  const u32 pair =
      device::load_shared(tail.shared + kShared.gamma + static_cast<u32>(line) * protocol::kLineBytes +
                          static_cast<u32>(part / 2) * 4);
  const float scaled = __fmul_rn(part % 2 == 0 ? device::low_float(pair) : device::high_float(pair), x);
  const float next = __shfl_down_sync(~0u, x, 1), scaled_next = __shfl_down_sync(~0u, scaled, 1);
  float squares = __fmaf_rn(next, next, __fmul_rn(x, x));
  squares = __fadd_rn(squares, __shfl_down_sync(~0u, squares, 4));
  squares = __fadd_rn(squares, __shfl_down_sync(~0u, squares, 2));
  if (!on || part % 2 != 0) return;
  device::store_shared(tail.shared + kShared.operand +
                           static_cast<u32>(tile_token * kCut.pitch + line * protocol::kLineBytes + part * 2),
                       device::pack_bf16(scaled, scaled_next));
  if (part == 0)
    device::store_shared(
        tail.shared + kShared.item_squares + static_cast<u32>(tile_token * kShared.item_pitch + line) * 4,
        squares);
}

}  // namespace moetail::kernels
