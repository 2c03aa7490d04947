// SPDX-License-Identifier: Apache-2.0
// The end of an iteration: each block adds up the slices of the rows it owns, applies the norm, adds what came over the shared
// mailboxes, rounds once and puts its columns of the output row into every rank's box.
#pragma once

#include "kernels/product.hpp"

namespace moetail::kernels {

/// The sum of the slices' squares of a token, over the `kLanes` lanes that share it, `first` the lane's first: slice i and i + n / 2 first, then halves again. An
/// order that depends on the number of slices alone.
template <int kLanes>
MOETAIL_DEVICE float sum_squares(u32 first) {
  constexpr int kEach = kGeometry.slices / kLanes;
  float sum[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    sum[i] = device::load_shared_float(first + static_cast<u32>(i * kLanes * kCut.squares_pitch) * 4);
#pragma unroll
  for (int n = kEach / 2; n > 0; n /= 2)
#pragma unroll
    for (int i = 0; i < n; ++i) sum[i] = __fadd_rn(sum[i], sum[i + n]);
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2)
    sum[0] = __fadd_rn(sum[0], __shfl_xor_sync(~0u, sum[0], step));
  return sum[0];
}

/// Token at a place of a row of `partials`, the inverse of sent_position: lanes side by side take places side by side, and meet no bank twice.
MOETAIL_DEVICE i32 token_at(i32 position) {
  if constexpr (kTokenTiles < 2) return position;
  return (position & ~15) + position % 4 / 2 * 8 + position % 16 / 4 * 2 + position % 2;
}

/// A lane's output row: where its parts lie in shared memory, and where it goes.
struct Row {
  u32 products, squares, shared_sum;
  u64 at;  ///< element of the output
  i32 owned;
  u32 on;  ///< 0: the lane does the last token's work once more, and keeps it to itself
};

/// The lane's row of 32 of the tile's, `first` and on.
MOETAIL_DEVICE Row row_of(const Tail& tail, const Iteration& it, i32 first) {
  constexpr i32 kRows = kCut.owner_rows;
  const i32 tokens = tokens_of(tail, it.tile), wanted = token_at((first + tail.lane) / kRows);
  const i32 token = wanted < tokens ? wanted : tokens - 1, owned = (first + tail.lane) % kRows;
  const i32 row = owned_row(tail, it.row_block) + owned;
  Row out;
  out.products = partials(tail, it) + static_cast<u32>(owned * kCut.sent_pitch + sent_position(token)) * 4;
  out.squares = squares(tail, it) + static_cast<u32>(owned * kCut.squares_pitch + token) * 4;
  out.shared_sum = shared_sums(tail, it) + static_cast<u32>(token * kRows + owned) * 4;
  out.at = static_cast<u64>(it.tile * kGeometry.tile + token) * kShape.hidden +
           static_cast<u64>(tail.args.rank * kShape.shard() + row);
  out.owned = owned;
  out.on = wanted < tokens && row < kShape.shard() ? 1 : 0;
  return out;
}

/// A lane's row: slices in order 0, 1, ...; rows of a pair leave as one word.
MOETAIL_DEVICE void finish_row(const Tail& tail, const Row& row, bool failed) {
  constexpr i32 kRows = kCut.owner_rows;
  float residual = 0.0f;
  if constexpr (kHasResidual)
    if (row.on != 0) residual = device::low_float(device::load_weak(tail.args.call.residual + row.at));
  float value = device::load_shared_float(row.products);
#pragma unroll
  for (int s = 1; s < kGeometry.slices; ++s)
    value = __fadd_rn(value, device::load_shared_float(row.products + s * kRows * kCut.sent_pitch * 4));
  const float square = sum_squares<kRows>(row.squares);
  const float scale = rsqrtf(__fmaf_rn(square, 1.0f / static_cast<float>(kShape.latent), kShape.eps));
  value = __fmaf_rn(value, scale, device::load_shared_float(row.shared_sum));
  if constexpr (kHasResidual) value = __fadd_rn(value, residual);
  if (failed) value = __uint_as_float(0x7FFFFFFFu);
  const float next = __shfl_down_sync(~0u, value, 1);
  if (row.on != 0 && row.owned % 2 == 0)
    put(tail.view, place<Region::out>(0, 0, 0) + row.at * 2, device::pack_bf16(value, next));
}

/// The shared partials of the rows that this warp finishes, a token a lane, where the side warp leaves them to it. False after a fault.
MOETAIL_DEVICE bool reduce_own_shared(const Tail& tail, i32 index) {
  constexpr i32 kWarpTokens = 32 / kCut.owner_rows, kRounds = kGeometry.tile * kCut.owner_rows / kThreads + 1;
  static_assert(kRounds * kWarpTokens <= 32);
  stall<Site::shared_poll>(tail.args, tail.block());
  const i32 tokens = tokens_of(tail, iteration_of(tail, index).tile);
  const i32 place =
      (tail.lane / kWarpTokens * (kThreads / 32) + tail.warp) * kWarpTokens + tail.lane % kWarpTokens;
  const i32 token = token_at(place);
  if (tail.lane >= kRounds * kWarpTokens || place >= kGeometry.tile || token >= tokens) return true;
  return reduce_shared_item(tail, shared_item(tail, index, tokens, token));
}

/// Once all lanes of a warp have polled all that an iteration takes: the block arrives, where it has not done so early.
MOETAIL_DEVICE void arrive_late(Tail& tail, bool is_last) {
  if constexpr (!kSidePollsShared && !kArrivesEarly) {
    if (tail.lane == 0) device::arrive_barrier(tail.sums_barrier());
    if (!is_last || tail.thread != kControlThread) return;
    device::wait_barrier(tail.sums_barrier(), 0);
    tail.arrived = arrive(tail);
  }
}

/// Iteration `index`'s output rows of this block. `alive`: no wait of this thread has ended badly; one may here. `is_last`: of the call.
MOETAIL_DEVICE void finish_rows(Tail& tail, i32 index, bool& alive, bool is_last) {
  const Iteration it = iteration_of(tail, index);
  // Places of whole n8 pairs: the last ones may hold no token.
  const i32 tokens = tokens_of(tail, it.tile),
            count = (kTokenTiles < 2 ? tokens : round_up(tokens, 16)) * kCut.owner_rows;
  if constexpr (kRearmsInExchange)
    if (is_last && !tail.has_failed()) rearm_previous(tail, errand_thread(tail), tail.block(), kBlocks);
  // The block's memory is its peers' until the last of its warps ends.
  if (kSideFinishes && tail.warp != kSideWarp) return;
  if constexpr (!kSidePollsShared) {
    if (alive) each_time<Stage::shared_polls>([&] { alive = reduce_own_shared(tail, index); });
    if (!alive) tail.set_failed();
    // All lanes, those whose waits have ended badly too: they finish rows together, of sums and of a flag that any of them has left.
    __syncwarp();
    arrive_late(tail, is_last);
  }
  constexpr i32 kStep = kSideFinishes ? 32 : kThreads;
  i32 first = kSideFinishes ? 0 : tail.warp * 32;
  Row row{};
  if constexpr (!kExchangesAreOwn)
    if (first < count) {
      row = row_of(tail, it, first);
      for (u32* value : {&row.products, &row.squares, &row.shared_sum, &row.on}) device::pin(*value);
      device::pin(row.at);
    }
  device::wait_barrier(tail.exchange_barrier(it.exchange), static_cast<u32>(it.exchange_parity));
  if constexpr (kSidePollsShared && kSideIsApart && !kSideFinishes)
    device::wait_barrier(tail.sums_barrier(), kExchangesAreOwn ? 0 : static_cast<u32>(index & 1));
  // Of the sums, too, which were not waited for before the product.
  const bool failed = tail.has_failed();
  mark<Mark::exchanged>(tail);
  stall<Site::out_publish>(tail.args, tail.block());
  if constexpr (kExchangesAreOwn)
    if (first < count) row = row_of(tail, it, first);
  if (first < count) each_time<Stage::output>([&] { finish_row(tail, row, failed); });
  if constexpr (kGeometry.tile * kCut.owner_rows > kStep) {
#pragma unroll 1
    for (first += kStep; first < count; first += kStep)
      each_time<Stage::output>([&] { finish_row(tail, row_of(tail, it, first), failed); });
  }
  if constexpr (!kArrivesEarly && !kSidePollsShared)
    if (is_last && tail.thread == kControlThread) end_call(tail, tail.arrived);
}

/// An iteration's products and squares on their way to their owners. `is_last`: of the call.
MOETAIL_DEVICE void send_products(const Tail& tail, const Iteration& it, const Ready& ready, bool failed,
                                  bool is_last) {
  if (sends_squares(tail)) send_squares(tail, it, failed);
  if (tail.warp < kComputeWarps)
    multiply_and_send(tail, it, ready, failed);
  else if (is_last && tail.lane == 0 && (kArrivesEarly || kSidePollsShared))
    end_call(tail, kArrivesEarly ? tail.arrived : arrive(tail));
  mark<Mark::sent>(tail);
  if (is_last) trigger_at(Trigger::after_product);
}

/// Between two iterations that share an exchange: the stage is free, the exchange's phase is open again, and the cluster may send anew.
MOETAIL_DEVICE void reopen_exchange(const Tail& tail, i32 index, i32 num_iterations) {
  __syncthreads();
  refill_stage(tail, index, num_iterations);
  if (tail.thread == 0) device::expect_bytes(tail.exchange_barrier(0), kExchangeBytes);
  device::arrive_cluster_release();
}

/// Everything after the polls of an iteration, where iterations share an exchange.
MOETAIL_DEVICE void project_one(Tail& tail, i32 index, i32 num_iterations, bool& alive) {
  const Iteration it = iteration_of(tail, index);
  const bool is_last = index + 1 == num_iterations;
  Ready ready;
  meet(tail, index, [&] { ready = make_ready(tail, it); });
  if (index > 0) device::wait_cluster_acquire();
  const bool failed = tail.has_failed();
  mark<Mark::met>(tail);
  send_products(tail, it, ready, failed, is_last);
  finish_rows(tail, index, alive, is_last);
  if (!is_last) reopen_exchange(tail, index, num_iterations);
}

/// Everything after the polls, where each iteration has an exchange of its own: none waits for another but for the weights' stages, and each
/// finishes the one before it, whose slices have met meanwhile.
MOETAIL_DEVICE void project_all(Tail& tail, i32 num_iterations, bool& alive) {
  meet(tail, 0, [] {});
  const bool failed = tail.has_failed();
  mark<Mark::met>(tail);
  for (i32 index = 0; index < num_iterations; ++index) {
    const bool is_last = index + 1 == num_iterations;
    const Iteration it = iteration_of(tail, index);
    send_products(tail, it, {}, failed, is_last);
    if constexpr (kReadersAreAlone) {
      if (tail.warp < kRowGroups) refill_rows(tail, index, num_iterations, tail.warp);
    } else if (!is_last) {
      __syncthreads();
      refill_stage(tail, index, num_iterations);
    }
    if (index > 0) finish_rows(tail, index - 1, alive, false);
  }
  finish_rows(tail, num_iterations - 1, alive, true);
}

/// From the polls to the output rows. `alive`: no wait of this thread has ended badly so far.
MOETAIL_DEVICE void reduce_and_project(Tail& tail, bool alive, i32 num_iterations) {
  // Residual, and a given shared partial behind polled rows, are ordinary inputs.
  constexpr bool kWaitsLate = kStartsEarly || (kPollsSlots && kPollsShared);
  constexpr i32 kTogether = kExchangesAreOwn ? kMaxRowBlocks : 1;
  device::wait_barrier(tail.gamma_barrier(), 0);
  // Spread polls vote: whole warps take part, or none of their lanes.
  if constexpr (kSpreads) alive = __ballot_sync(~0u, !alive) == 0;
  for (i32 index = 0; index < num_iterations; index += kTogether) {
    alive = reduce_iterations(tail, index, kExchangesAreOwn ? num_iterations : 1, alive);
    if (!alive) tail.set_failed();
    mark<Mark::polled>(tail);
    if (index + kTogether >= num_iterations) trigger_at(Trigger::after_poll);
    if constexpr (kWaitsLate) device::wait_for_predecessor();
    if constexpr (kExchangesAreOwn)
      project_all(tail, num_iterations, alive);
    else
      project_one(tail, index, num_iterations, alive);
  }
}

}  // namespace moetail::kernels
