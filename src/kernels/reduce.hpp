// SPDX-License-Identifier: Apache-2.0
// Polls: the latents of a token tile summed in rank order and made the matrix operand bf16(gamma * x) of this K slice, and the
// shared partials of the rows that this block finishes.
#pragma once

#include "kernels/deliver.hpp"

namespace moetail::kernels {

// Mailboxes whose lines one thread has in flight; fewer where three blocks share the registers of an SM.
inline constexpr i32 kMaxRanksInFlight = kMinBlocks >= 3 ? 4 : 8;
inline constexpr i32 kRanksInFlight = kRanks < kMaxRanksInFlight ? kRanks : kMaxRanksInFlight;

/// The same line of every rank's mailbox, summed in rank order; rank 0's begins at `first`. False after a fault.
template <Region kRegion>
MOETAIL_DEVICE bool sum_ranks(const Tail& tail, Site site, i32 token, i32 line, device::Columns& sum) {
  const u8* first = reinterpret_cast<const u8*>(tail.view.mine<Line, kRegion>(tail.slot, 0, token) + line);
  Waiter waiter = tail.waiter();
  Spot spot{site, -1, token};
#pragma unroll
  for (i32 begin = 0; begin < kRanks; begin += kRanksInFlight) {
    Line lines[kRanksInFlight];
    const bool there = protocol::wait_until(waiter, spot, [&](Spot& where) {
#pragma unroll
      for (int r = 0; r < kRanksInFlight; ++r)
        lines[r] = device::load_relaxed_sys(
            reinterpret_cast<const Line*>(first + static_cast<u64>(begin + r) * kSourceBytes<kRegion>));
      u32 missing = 0;
#pragma unroll
      for (int r = 0; r < kRanksInFlight; ++r) missing |= protocol::has_empty(lines[r]) ? 1u << r : 0u;
      if (missing != 0) where.peer = begin + __ffs(static_cast<int>(missing)) - 1;
      return static_cast<int>(missing);
    });
    if (!there) return false;
    if (begin == 0) sum = device::columns_of(lines[0]);
#pragma unroll
    for (int r = begin == 0 ? 1 : 0; r < kRanksInFlight; ++r) device::add_line(sum, lines[r]);
  }
  return true;
}

/// Makes eight columns of x the operand's, and leaves the sum of their squares.
MOETAIL_DEVICE void set_operand(const Tail& tail, i32 tile_token, i32 line, const device::Columns& x) {
  const device::Columns gamma = device::columns_of(
      *tail.at<Line>(kShared.gamma + static_cast<u32>(line) * protocol::kLineBytes));
  device::Columns scaled;
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    scaled.value[i] = __fmul_rn(gamma.value[i], x.value[i]);
    squares = __fmaf_rn(x.value[i], x.value[i], squares);
  }
  *tail.at<Line>(kShared.operand + static_cast<u32>(tile_token * kCut.pitch + line * protocol::kLineBytes)) =
      device::pack_line(scaled);
  tail.at<float>(kShared.item_squares)[tile_token * kShared.item_pitch + line] = squares;
}

/// Tokens of tile `tile`.
MOETAIL_DEVICE i32 tokens_of(const Tail& tail, i32 tile) {
  if constexpr (kExactBatch && kMaxBatch <= kGeometry.tile) return kMaxBatch;
  const i32 left = tail.batch - tile * kGeometry.tile;
  return left < kGeometry.tile ? left : kGeometry.tile;
}

/// Compute warps: a line a thread, every rank's latent of it. False after a fault.
MOETAIL_DEVICE bool reduce_latents(const Tail& tail, i32 tile) {
  const i32 lines = tail.slice_lines(), count = tokens_of(tail, tile) * lines;
  for (i32 i = tail.thread; i < count; i += kComputeWarps * 32) {
    const i32 tile_token = i / lines, line = i % lines;
    device::Columns x;
    if (!sum_ranks<Region::latent>(tail, Site::latent_poll, tile * kGeometry.tile + tile_token,
                                   tail.slice_begin() + line, x))
      return false;
    set_operand(tail, tile_token, line, x);
  }
  return true;
}

/// First row of the shard that this block finishes in row block `row_block`.
MOETAIL_DEVICE i32 owned_row(const Tail& tail, i32 row_block) {
  return row_block * kGeometry.row_block + tail.slice * kCut.owner_rows;
}

/// One warp, a token a lane: the shared partials of this block's rows, summed in rank order. False after a fault.
MOETAIL_DEVICE bool reduce_shared(const Tail& tail, i32 tile, i32 row_block) {
  const i32 row = owned_row(tail, row_block);
  if (row >= kShape.shard()) return true;
  for (i32 token = tail.lane; token < tokens_of(tail, tile); token += 32) {
    device::Columns sum;
    if (!sum_ranks<Region::shared>(tail, Site::shared_poll, tile * kGeometry.tile + token,
                                   row / protocol::kLineColumns, sum))
      return false;
    float* to = tail.at<float>(kShared.shared_sums) + token * kCut.owner_rows;
    const i32 first = row % protocol::kLineColumns;
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (kCut.owner_rows == 8 || (i >= first && i < first + kCut.owner_rows)) to[i - first] = sum.value[i];
  }
  return true;
}

}  // namespace moetail::kernels
