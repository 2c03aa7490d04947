// SPDX-License-Identifier: Apache-2.0
// Prologue and weight pipeline: barriers, constants on their way into shared memory before the dependency wait, and the ring of
// stages through which row blocks of the shard stream. Resident is the case where a cluster's row blocks all fit.
#pragma once

#include "device/clock.hpp"
#include "kernels/team.hpp"

namespace moetail::kernels {

inline constexpr i32 kMaxRowBlocks = (kCut.row_blocks + kGeometry.clusters - 1) / kGeometry.clusters;
inline constexpr bool kWeightsAreResident = kMaxRowBlocks <= kGeometry.stages;
inline constexpr bool kSliceIsPadded = !kSlicesAreEqual || kCut.padded_columns != 8 * kCut.slice_lines;
static_assert(kGeometry.clusters <= kCut.row_blocks,
              "a cluster needs a row block: use fewer clusters or a smaller row_block");

/// Each iteration of a call has an exchange of its own: none waits for the one before it to be over.
inline constexpr bool kExchangesAreOwn = kGeometry.exchanges > 1;
static_assert(!kExchangesAreOwn || (kGeometry.exchanges >= kMaxRowBlocks && kMaxBatch <= kGeometry.tile),
              "one exchange, or, of a call of one tile, one for each row block: tiles share an operand");

inline constexpr u32 kExchangeBytes = exchange_bytes(kCut, kGeometry) * kTimes<Stage::exchange>;

/// Iteration `index` of a tail: tile index / n, row block index % n, where n is the number of this cluster's row blocks. `stage`, `parity`:
/// of its weights; `exchange`, `exchange_parity`: of its partial products.
struct Iteration {
  i32 tile, row_block, stage, parity, exchange, exchange_parity;
};

MOETAIL_DEVICE Iteration iteration_of(const Tail& tail, i32 index) {
  const i32 n = tail.num_row_blocks();
  const i32 tile = kMaxRowBlocks == 1 ? index : index / n, local = kMaxRowBlocks == 1 ? 0 : index % n;
  const i32 row_block = tail.cluster + local * kGeometry.clusters;
  const i32 exchange = kExchangesAreOwn ? index : 0, exchange_parity = kExchangesAreOwn ? 0 : index & 1;
  if constexpr (kWeightsAreResident) return {tile, row_block, local, 0, exchange, exchange_parity};
  return {tile, row_block, index % kGeometry.stages, index / kGeometry.stages & 1, exchange, exchange_parity};
}

MOETAIL_DEVICE bool is_first_of_tile(const Tail& tail, const Iteration& it) {
  return kMaxRowBlocks == 1 || it.row_block == tail.cluster;
}

/// Starts the copy of row `row` of iteration `index`'s weights into its stage, which is free.
MOETAIL_DEVICE void fetch_row(const Tail& tail, i32 index, i32 row) {
  const Iteration it = iteration_of(tail, index);
  const i32 first_row = it.row_block * kGeometry.row_block;
  const u32 row_bytes = static_cast<u32>(tail.slice_lines()) * protocol::kLineBytes;
  const u32 barrier = tail.weights_barrier(it.stage, row / 16);
  if (row % 16 == 0) {
    const i32 left = kShape.shard() - first_row - row;
    device::expect_bytes(barrier, static_cast<u32>(left < 0    ? 0
                                                   : left < 16 ? left
                                                               : 16) *
                                      row_bytes * kTimes<Stage::weights>);
  }
  if (first_row + row >= kShape.shard() || row_bytes == 0) return;
  const u16* from = tail.args.call.shard + static_cast<u64>(first_row + row) * kShape.latent +
                    tail.slice_begin() * protocol::kLineColumns;
  const u32 to =
      tail.shared + kShared.weights + static_cast<u32>((it.stage * kGeometry.row_block + row) * kCut.pitch);
  each_time<Stage::weights>(
      [&] { device::copy_bulk_async(to, from, row_bytes, barrier, device::evict_first_policy()); });
}

// Rows that one warp fetches. Its copies queue up at 60 clocks each, which sets how fast a small batch's weights are asked for: all at once they
// fill the memory's queues, and polls and control words of the layer before wait behind them. 32 rows a warp instead of 16 took up to 0.1 us off at
// B = 1 to 8 and 0.5 us at T = 2, 64 rows 0.4 us at 16; from 32 tokens on a layer waits for them instead (H200, 2026-11-30).
inline constexpr i32 kSlowRows = kMaxBatch <= 8    ? 32
                                 : kMaxBatch <= 16 ? 64
                                                   : kGeometry.row_block / kComputeWarps;
inline constexpr i32 kFetchRows = kSlowRows < kGeometry.row_block ? kSlowRows : kGeometry.row_block;
static_assert(kGeometry.row_block % kFetchRows == 0 && kGeometry.row_block / kFetchRows <= kComputeWarps);

// Clocks that a block waits before its first copies. The layer before polls then; 3.3 us a layer at B = 4 instead of 3.5 (H200, 2026-11-30).
inline constexpr i32 kFetchPause = kMaxBatch == 4 && kRanks >= 8 && kMinBlocks > 1 ? 100 : 0;

/// Starts the copies of iteration `index`'s weights: the highest compute warps, since the lowest have expert rows to load.
MOETAIL_DEVICE void fetch_weights(const Tail& tail, i32 index) {
  const i32 first = (kComputeWarps - 1 - tail.warp) * kFetchRows;
  if (tail.warp == kSideWarp || first >= kGeometry.row_block) return;
#pragma unroll 1
  for (i32 i = tail.lane; i < kFetchRows; i += 32) fetch_row(tail, index, first + i);
}

/// Columns that pad a slice to whole k16 steps hold zeros in weights and operand: 0 times what memory happened to hold may be NaN.
MOETAIL_DEVICE void clear_padding(const Tail& tail) {
  if constexpr (kSliceIsPadded) {
    constexpr i32 kLines = kCut.padded_columns / 8;
    constexpr i32 kWeightRows = kGeometry.stages * kGeometry.row_block;
    const i32 first = tail.slice_lines(), count = kLines - first;
    for (i32 i = tail.thread; i < (kWeightRows + kCut.padded_tile) * count; i += kThreads) {
      const i32 row = i / count, line = first + i % count;
      const u32 base = row < kWeightRows ? kShared.weights : kShared.operand;
      const i32 local = row < kWeightRows ? row : row - kWeightRows;
      device::store_shared(
          tail.shared + base + static_cast<u32>(local * kCut.pitch + line * protocol::kLineBytes), Line{});
    }
  }
}

/// Everything a block does before the dependency wait: it touches constants only.
MOETAIL_DEVICE void open_block(const Tail& tail, i32 num_iterations) {
  if (tail.thread == 0) {
    for (i32 i = 0; i < kGeometry.stages * kRowGroups + kGeometry.exchanges + 1; ++i)
      device::init_barrier(tail.weights_barrier(0, i));
    for (i32 team = 0; team < kTeams; ++team) device::init_barrier(tail.team_barrier(team), kTeamWarps);
    device::init_barrier(tail.sums_barrier(),
                         kSidePollsShared ? 1 : static_cast<u32>(num_iterations * (kThreads / 32)));
    device::init_barrier(tail.control_barrier());
    device::fence_barrier_init();
    for (i32 i = 0; i < (kExchangesAreOwn ? num_iterations : 1); ++i)
      device::expect_bytes(tail.exchange_barrier(i), kExchangeBytes);
    device::store_shared(tail.words() + block_words::kFailed, 0u);
  }
  clear_padding(tail);
  __syncthreads();
  // Nobody stores into another block before that one has started and set up its barriers.
  device::arrive_cluster_relaxed();
  if (tail.thread == kThreads - 1) {
    const u32 bytes = static_cast<u32>(tail.slice_lines()) * protocol::kLineBytes;
    device::expect_bytes(tail.gamma_barrier(), bytes);
    if (bytes != 0)
      device::copy_bulk_async(tail.shared + kShared.gamma,
                              tail.args.call.norm + tail.slice_begin() * protocol::kLineColumns, bytes,
                              tail.gamma_barrier());
  }
  if constexpr (kFetchPause > 0) {
    const u64 begin = device::clock_cycles();
    while (static_cast<i32>(device::clock_cycles() - begin) < kFetchPause) {
    }
  }
  const i32 loads = kWeightsAreResident ? tail.num_row_blocks() : num_iterations;
#pragma unroll
  for (i32 i = 0; i < kGeometry.stages; ++i)
    if (i < loads) fetch_weights(tail, i);
  touch_arguments(tail);
  // Here and not before the first such store: its acquire empties the L1, and that would be in front of the rows' loads.
  device::wait_cluster_acquire();
}

/// After the last use of iteration `index`'s stage by any thread of the block.
MOETAIL_DEVICE void refill_stage(const Tail& tail, i32 index, i32 num_iterations) {
  if constexpr (!kWeightsAreResident)
    if (index + kGeometry.stages < num_iterations) fetch_weights(tail, index + kGeometry.stages);
}

/// The same by the one warp that reads these 16 rows of the stage, once it has: no other warp is waited for.
MOETAIL_DEVICE void refill_rows(const Tail& tail, i32 index, i32 num_iterations, i32 row_group) {
  if constexpr (!kWeightsAreResident) {
    __syncwarp();
    if (index + kGeometry.stages < num_iterations && tail.lane < 16)
      fetch_row(tail, index + kGeometry.stages, row_group * 16 + tail.lane);
  }
}

}  // namespace moetail::kernels
