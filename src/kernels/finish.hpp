// SPDX-License-Identifier: Apache-2.0
// The end of an iteration: each block adds up the slices of the rows it owns, applies the norm, adds what came over the shared
// mailboxes, rounds once and puts its columns of the output row into every rank's box.
#pragma once

#include "kernels/product.hpp"

namespace moetail::kernels {

/// Two rows of one token a thread, slices in order 0, 1, ... `parity`: of the exchange.
MOETAIL_DEVICE void finish_rows(const Tail& tail, i32 tile, i32 row_block, u32 parity) {
  constexpr i32 kRowPairs = kCut.owner_rows / 2;
  const i32 count = tokens_of(tail, tile) * kRowPairs;
  device::wait_barrier(tail.exchange_barrier(), parity);
  mark(tail, 11);
  stall<Site::out_publish>(tail.args, tail.block());
#pragma unroll 1
  for (i32 i = tail.thread; i < count; i += kThreads) {
    const i32 token = i / kRowPairs, pair = i % kRowPairs;
    const i32 row = owned_row(tail, row_block) + 2 * pair;
    const i32 column = tail.args.rank * kShape.shard() + row;
    const i32 batch_token = tile * kGeometry.tile + token;
    if (row >= kShape.shard()) continue;
    u32 residual = 0;
    if constexpr (kHasResidual)
      residual = device::load_weak(reinterpret_cast<const u32*>(
          tail.args.call.residual + static_cast<u64>(batch_token) * kShape.hidden + column));
    const float* partials =
        tail.at<float>(kShared.partials) + 2 * pair * kCut.sent_pitch + sent_position(token);
    const float* squares = tail.at<float>(kShared.squares) + token;
    float first = partials[0], second = partials[kCut.sent_pitch], square = squares[0];
#pragma unroll
    for (int s = 1; s < kGeometry.slices; ++s) {
      first = __fadd_rn(first, partials[s * kCut.owner_rows * kCut.sent_pitch]);
      second = __fadd_rn(second, partials[(s * kCut.owner_rows + 1) * kCut.sent_pitch]);
      square = __fadd_rn(square, squares[s * kGeometry.tile]);
    }
    const float scale = rsqrtf(__fmaf_rn(square, 1.0f / static_cast<float>(kShape.latent), kShape.eps));
    const float* shared = tail.at<float>(kShared.shared_sums) + token * kCut.owner_rows + 2 * pair;
    first = __fmaf_rn(first, scale, shared[0]);
    second = __fmaf_rn(second, scale, shared[1]);
    if constexpr (kHasResidual) {
      first = __fadd_rn(first, device::low_float(residual));
      second = __fadd_rn(second, device::high_float(residual));
    }
    put(tail.args, place<Region::out>(0, 0, batch_token) + static_cast<u64>(column) * 2,
        device::pack_bf16(first, second));
  }
}

/// Between two iterations: the stage is free, the exchange's phase is open again, and the cluster may send anew.
MOETAIL_DEVICE void reopen_exchange(const Tail& tail, i32 index, i32 num_iterations) {
  __syncthreads();
  refill_stage(tail, index, num_iterations);
  if (tail.thread == 0) device::expect_bytes(tail.exchange_barrier(), exchange_bytes(kCut, kGeometry));
  device::arrive_cluster_release();
}

/// Everything after the polls of an iteration.
MOETAIL_DEVICE void project_and_publish(const Tail& tail, i32 index, i32 num_iterations) {
  const Iteration it = iteration_of(tail, index);
  const bool is_last = index + 1 == num_iterations;
  mark(tail, 7);
  __syncthreads();
  mark(tail, 8);
  device::wait_cluster_acquire();
  const bool failed = *tail.failed != 0;
  mark(tail, 9);
  if (tail.warp < kComputeWarps) {
    device::wait_barrier(tail.weights_barrier(it.stage, tail.warp % kRowGroups), static_cast<u32>(it.parity));
    multiply_and_send(tail, it.stage, failed);
    mark(tail, 10);
  } else {
    const bool arrives = is_last && tail.lane == 0;
    u64 arrived = 0;
    if (arrives) arrived = arrive_at_end(tail);
    send_squares(tail, tokens_of(tail, it.tile), failed);
    if (arrives) end_call(tail, arrived);
    mark(tail, 10);
  }
  if (is_last) trigger_at(Trigger::after_product);
  finish_rows(tail, it.tile, it.row_block, static_cast<u32>(index & 1));
  if (!is_last) reopen_exchange(tail, index, num_iterations);
}

}  // namespace moetail::kernels
