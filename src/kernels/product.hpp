// SPDX-License-Identifier: Apache-2.0
// The up projection of one K slice on the matrix unit, and the exchange in which a cluster's slices meet: every block sends each
// owner its rows' partial products and the slice's squares, through distributed shared memory onto the owner's barrier.
#pragma once

#include "device/matrix.hpp"
#include "device/pin.hpp"
#include "kernels/reduce.hpp"
#include "kernels/weights.hpp"

namespace moetail::kernels {

inline constexpr i32 kSteps = kCut.padded_columns / 32;  ///< pairs of k16 steps
// Independent chains of products, added at the end: one chain of 14 products is 0.25 us of latency at B = 1. A function of the
// batch alone: it is part of the order of the sum.
inline constexpr i32 kChains = kMaxBatch <= 8 ? 4 : 2;

/// One warp alone reads a row group's weights: it refills them by itself.
inline constexpr bool kReadersAreAlone = kTokenTiles == 1 || kTokenGroups == 1;

/// Where a token of a tile lies in a row of `partials`: pairs of n8 tiles are interleaved as lanes hold them.
MOETAIL_DEVICE i32 sent_position(i32 token) {
  if constexpr (kTokenTiles < 2) return token;
  return (token & ~15) + (token % 8 / 2) * 4 + (token / 8 % 2) * 2 + token % 2;
}

struct Addresses {
  u32 weights, operand;
};

/// Where this lane reads its warp's 16 rows of the row block in `stage`, and the operand. A tile of fewer than 8 tokens is read as
/// often as it takes: what the further columns come to is dropped.
MOETAIL_DEVICE Addresses fragments_of(const Tail& tail, i32 stage) {
  const u32 row = static_cast<u32>(tail.lane) / 4, part = static_cast<u32>(tail.lane) % 4 * 16;
  constexpr u32 kTokens = kGeometry.tile < 8 ? kGeometry.tile : 8;
  return {
      tail.shared + kShared.weights + part +
          (static_cast<u32>(stage * kGeometry.row_block + tail.warp % kRowGroups * 16) + row) * kCut.pitch,
      tail.shared + kShared.operand + part + row % kTokens * kCut.pitch};
}

/// n8 tiles of this warp's 16 rows.
template <int kTiles>
MOETAIL_DEVICE void multiply(const Addresses& from, device::Tile (&out)[kTiles]) {
  device::Tile chain[kChains][kTiles] = {};
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const device::Line upper = device::load_shared_line(from.weights + step * 64);
    const device::Line lower = device::load_shared_line(from.weights + step * 64 + 8 * kCut.pitch);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const device::Line b = device::load_shared_line(from.operand + n * 8 * kCut.pitch + step * 64);
      device::multiply_add<0>(chain[2 * step % kChains][n], upper, lower, b);
      device::multiply_add<1>(chain[(2 * step + 1) % kChains][n], upper, lower, b);
    }
  }
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float sum = __fadd_rn(chain[0][n].value[i], chain[1][n].value[i]);
      if constexpr (kChains == 4) sum = __fadd_rn(sum, __fadd_rn(chain[2][n].value[i], chain[3][n].value[i]));
      out[n].value[i] = sum;
    }
  }
}

/// One, two or four floats to a block of the cluster, counted on its barrier.
template <class... Floats>
MOETAIL_DEVICE void send(u32 to, u32 barrier, Floats... values) {
  each_time<Stage::exchange>([&] { device::store_async(to, barrier, values...); });
}

/// A fault's bytes are delivered too, as NaN: nobody waits for them in vain, and nobody takes them for a result.
template <int kTiles>
MOETAIL_DEVICE void spoil(device::Tile (&tiles)[kTiles]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) tiles[n].value[i] = __uint_as_float(0x7FFFFFFFu);
}

/// Where row `row` of the row block goes: its place at the owner, and the owner's barrier.
struct Sent {
  u32 to, barrier;
};
MOETAIL_DEVICE Sent sent_row(const Tail& tail, const Iteration& it, u32 row) {
  const u32 owner = row / kCut.owner_rows, owner_row = row % kCut.owner_rows;
  const u32 local =
      partials(tail, it) + (static_cast<u32>(tail.slice) * kCut.owner_rows + owner_row) * kCut.sent_pitch * 4;
  return {device::address_in_block(local, owner),
          device::address_in_block(tail.exchange_barrier(it.exchange), owner)};
}

/// Of the one n8 tile of up to 8 tokens: which of its warp's rows a lane sends, and where its product's operands are.
struct Ready {
  Addresses from;
  u32 row;
  Sent at;
};

/// What a compute warp works out before the operand is there, where it is not needed again and again.
MOETAIL_DEVICE Ready make_ready(const Tail& tail, const Iteration& it) {
  Ready ready;
  if constexpr (kTokenTiles == 1) {
    const u32 lane = static_cast<u32>(tail.lane);
    // Up to two tokens four lanes hold the same: two of them have the upper rows, two the lower ones.
    const bool lower = (lane & (kCut.sent_tokens <= 2 ? 2 : 1)) != 0;
    ready.from = fragments_of(tail, it.stage);
    ready.row = static_cast<u32>(tail.warp % kRowGroups * 16) + (lower ? 8 : 0) + lane / 4;
    ready.at = sent_row(tail, it, ready.row);
    if constexpr (kCut.sent_tokens > 2) ready.at.to += lane % 4 / 2 * 16;
    if constexpr (!kExchangesAreOwn)
      for (u32* value :
           {&ready.from.weights, &ready.from.operand, &ready.row, &ready.at.to, &ready.at.barrier})
        device::pin(*value);
  }
  return ready;
}

/// The one n8 tile of up to 8 tokens. The network of a cluster takes a piece of up to 16 bytes at a time, whatever it holds, so lanes hand each other
/// what lies side by side at the owner: rows of one token, two of each of two, or four tokens of a row.
MOETAIL_DEVICE void send_few(const Tail& tail, const Ready& ready, const device::Tile& tile) {
  constexpr i32 kTokens = kCut.sent_tokens;
  const u32 lane = static_cast<u32>(tail.lane);
  const auto& v = tile.value;
  const Sent& at = ready.at;
  if constexpr (kTokens <= 2) {
    const bool lower = (lane & 2) != 0;
    const float a = lower ? v[2] : v[0], next_a = __shfl_down_sync(~0u, a, 4);
    if constexpr (kTokens == 2) {
      const float b = lower ? v[3] : v[1], next_b = __shfl_down_sync(~0u, b, 4);
      if (lane % 2 == 0 && ready.row % 2 == 0) send(at.to, at.barrier, a, b, next_a, next_b);
    } else if constexpr (kCut.owner_rows >= 4) {
      const float third = __shfl_down_sync(~0u, a, 8), fourth = __shfl_down_sync(~0u, next_a, 8);
      if (lane % 2 == 0 && ready.row % 4 == 0) send(at.to, at.barrier, a, next_a, third, fourth);
    } else {
      if (lane % 2 == 0 && ready.row % 2 == 0) send(at.to, at.barrier, a, next_a);
    }
  } else {
    const bool lower = (lane & 1) != 0;
    const float a = __shfl_xor_sync(~0u, lower ? v[0] : v[2], 1),
                b = __shfl_xor_sync(~0u, lower ? v[1] : v[3], 1);
    if (lane % 4 / 2 * 4 >= static_cast<u32>(kTokens)) return;
    if (lower)
      send(at.to, at.barrier, a, b, v[2], v[3]);
    else
      send(at.to, at.barrier, v[0], v[1], a, b);
  }
}

/// Compute warps: multiplies the tile by the iteration's row block and sends the products to their owners.
MOETAIL_DEVICE void multiply_and_send(const Tail& tail, const Iteration& it, Ready ready, bool failed) {
  const i32 row_group = tail.warp % kRowGroups, token_group = tail.warp / kRowGroups;
  if constexpr (kTokenTiles == 1 && kTokenGroups > 1)
    if (token_group != 0) return;
  device::wait_barrier(tail.weights_barrier(it.stage, row_group), static_cast<u32>(it.parity));
  if constexpr (kTokenTiles == 1) {
    device::Tile tile[1];
    // Where iterations follow each other registers are short, and the wait for weights is the long one.
    if constexpr (kExchangesAreOwn) ready = make_ready(tail, it);
    each_time<Stage::product>([&] { multiply<1>(ready.from, tile); });
    if (failed) spoil(tile);
    send_few(tail, ready, tile[0]);
  } else {
    const Addresses from = fragments_of(tail, it.stage);
    // This lane's two rows of the row block.
    const u32 lane = static_cast<u32>(tail.lane), row = static_cast<u32>(row_group * 16) + lane / 4;
    const Sent at[2] = {sent_row(tail, it, row), sent_row(tail, it, row + 8)};
#pragma unroll 1
    for (i32 pair = token_group * kPairsAtOnce; pair < kTilePairs; pair += kTokenGroups * kPairsAtOnce) {
      device::Tile tile[2 * kPairsAtOnce];
      const Addresses pair_from = {from.weights, from.operand + static_cast<u32>(pair * 16 * kCut.pitch)};
      each_time<Stage::product>([&] { multiply<2 * kPairsAtOnce>(pair_from, tile); });
      if (failed) spoil(tile);
#pragma unroll
      for (int i = 0; i < kPairsAtOnce; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          send(at[half].to + static_cast<u32>(pair + i) * 64 + lane % 4 * 16, at[half].barrier,
               tile[2 * i].value[2 * half], tile[2 * i].value[2 * half + 1], tile[2 * i + 1].value[2 * half],
               tile[2 * i + 1].value[2 * half + 1]);
    }
  }
}

// Tokens whose squares a warp adds up at a time, eight lanes a token.
inline constexpr i32 kSquareTokens = 4;

/// The slice's sums of squares of the tokens `base` and on to every block. The order of the sum is a function of the shape alone.
MOETAIL_DEVICE void send_some_squares(const Tail& tail, const Iteration& it, i32 base, i32 tokens,
                                      bool failed) {
  const i32 part = tail.lane % 8;
  const i32 token = base + tail.lane / 8;
  const u32 items = tail.shared + kShared.item_squares + static_cast<u32>(token * kShared.item_pitch) * 4;
  const u32 barrier = tail.exchange_barrier(it.exchange);
  float sum = 0.0f;
#pragma unroll
  for (i32 octet = 0; octet < kCut.octets; ++octet) {
    const i32 line = octet * 8 + part;
    if (token < tokens && line < tail.slice_lines())
      sum = __fadd_rn(sum, device::load_shared_float(items + static_cast<u32>(line) * 4));
  }
#pragma unroll
  for (int step = 4; step > 0; step /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, step));
  if (failed) sum = __uint_as_float(0x7FFFFFFFu);
  if constexpr (kGeometry.tile > 16) {
    // A piece of 16 bytes to each block: four shuffles more than single words take, and a quarter of the stores.
    float sums[kSquareTokens];
#pragma unroll
    for (int i = 0; i < kSquareTokens; ++i) sums[i] = __shfl_sync(~0u, sum, 8 * i);
    if (tail.lane >= kGeometry.slices) return;
    const u32 block = static_cast<u32>(tail.lane);
    const u32 local = squares(tail, it) + static_cast<u32>(tail.slice * kCut.squares_pitch + base) * 4;
    send(device::address_in_block(local, block), device::address_in_block(barrier, block), sums[0], sums[1],
         sums[2], sums[3]);
  } else {
    if (token >= kGeometry.tile) return;
    const u32 local = squares(tail, it) + static_cast<u32>(tail.slice * kCut.squares_pitch + token) * 4;
#pragma unroll
    for (i32 block = part; block < kGeometry.slices; block += 8)
      send(device::address_in_block(local, static_cast<u32>(block)),
           device::address_in_block(barrier, static_cast<u32>(block)), sum);
  }
}

// The side warp alone sends up to eight tokens' squares, which take as long as the product beside it; of more all warps, of teams the compute warps, send
// some each, of their team's tokens. One warp took 7 us for 128 tokens (H200, 2026-11-30).
inline constexpr i32 kSquareWarps = kGeometry.tile <= 8 ? 1 : kTeams > 1 ? kTeamWarps : kComputeWarps + 1;

/// This warp sends some.
MOETAIL_DEVICE bool sends_squares(const Tail& tail) {
  if constexpr (kSquareWarps == 1) return tail.warp == kSideWarp;
  return kTeams == 1 || tail.warp < kComputeWarps;
}

MOETAIL_DEVICE void send_squares(const Tail& tail, const Iteration& it, bool failed) {
  const i32 tokens = tokens_of(tail, it.tile);
  const i32 warp = kTeams > 1 ? tail.warp % kTeamWarps : kSideWarp - tail.warp;
#pragma unroll 1
  for (i32 i = warp * kSquareTokens; i < kGeometry.tile / kTeams; i += kSquareTokens * kSquareWarps)
    send_some_squares(tail, it, team_token(tail, i), tokens, failed);
}

}  // namespace moetail::kernels
