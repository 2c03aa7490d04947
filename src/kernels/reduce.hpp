// SPDX-License-Identifier: Apache-2.0
// Polls: the latents of a token tile summed in rank order and made the matrix operand bf16(gamma * x) of this K slice, and the
// shared partials of the rows that this block finishes.
#pragma once

#include "kernels/deliver.hpp"
#include "kernels/weights.hpp"

namespace moetail::kernels {

// Mailboxes whose lines one thread has in flight; fewer where registers are short: three blocks an SM, or polled slots of many tokens.
inline constexpr i32 kMaxRanksInFlight = kMinBlocks >= 3 || (kPollsSlots && kMaxBatch > 8) ? 4 : 8;
inline constexpr i32 kRanksInFlight = kRanks < kMaxRanksInFlight ? kRanks : kMaxRanksInFlight;

/// The same line of every rank's mailbox, summed in rank order. `own`: this rank's line where the caller has it, or null. False after a
/// fault.
template <Region kRegion>
MOETAIL_DEVICE bool sum_ranks(const Tail& tail, Site site, i32 token, i32 line, device::Columns& sum,
                              const Line* own = nullptr) {
  const u8* first = reinterpret_cast<const u8*>(tail.view.mine<Line, kRegion>(tail.slot, 0, token) + line);
  Waiter waiter = tail.waiter();
  Spot spot{site, -1, token};
#pragma unroll
  for (i32 begin = 0; begin < kRanks; begin += kRanksInFlight) {
    Line lines[kRanksInFlight];
    const bool there = protocol::wait_until(waiter, spot, [&](Spot& where) {
#pragma unroll
      for (int r = 0; r < kRanksInFlight; ++r) {
        if (own != nullptr && begin + r == tail.args.rank)
          lines[r] = *own;
        else
          lines[r] = device::load_relaxed_sys(
              reinterpret_cast<const Line*>(first + static_cast<u64>(begin + r) * kSourceBytes<kRegion>));
      }
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
      device::load_shared_line(tail.shared + kShared.gamma + static_cast<u32>(line) * protocol::kLineBytes));
  device::Columns scaled;
#pragma unroll
  for (int i = 0; i < 8; ++i) scaled.value[i] = __fmul_rn(gamma.value[i], x.value[i]);
  float pair[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    pair[i] = __fmaf_rn(x.value[2 * i + 1], x.value[2 * i + 1], __fmul_rn(x.value[2 * i], x.value[2 * i]));
  const float squares = __fadd_rn(__fadd_rn(pair[0], pair[2]), __fadd_rn(pair[1], pair[3]));
  device::store_shared(
      tail.shared + kShared.operand + static_cast<u32>(tile_token * kCut.pitch + line * protocol::kLineBytes),
      device::pack_line(scaled));
  device::store_shared(
      tail.shared + kShared.item_squares + static_cast<u32>(tile_token * kShared.item_pitch + line) * 4,
      squares);
}

/// Tokens of tile `tile`.
MOETAIL_DEVICE i32 tokens_of(const Tail& tail, i32 tile) {
  if constexpr (kExactBatch && kMaxBatch <= kGeometry.tile) return kMaxBatch;
  const i32 left = tail.batch - tile * kGeometry.tile;
  return left < kGeometry.tile ? left : kGeometry.tile;
}

/// Compute warps: a line a thread, every rank's latent of it. False after a fault.
MOETAIL_DEVICE bool reduce_latents(const Tail& tail, i32 tile) {
  stall<Site::latent_poll>(tail.args, tail.block());
  const u32 lines = static_cast<u32>(tail.slice_lines()),
            count = static_cast<u32>(tokens_of(tail, tile)) * lines;
#pragma unroll 1
  for (u32 i = static_cast<u32>(tail.thread); i < count; i += kComputeWarps * 32) {
    const i32 tile_token = static_cast<i32>(i / lines), line = static_cast<i32>(i % lines);
    device::Columns x;
    if (!sum_ranks<Region::latent>(tail, Site::latent_poll, tile * kGeometry.tile + tile_token,
                                   tail.slice_begin() + line, x))
      return false;
    set_operand(tail, tile_token, line, x);
  }
  return true;
}

/// This block's share of its K slice's lines, summed over ranks once and handed to the rank's other clusters. False after a fault.
MOETAIL_DEVICE bool share_latents(const Tail& tail) {
  stall<Site::latent_poll>(tail.args, tail.block());
  const u32 lines = static_cast<u32>(tail.slice_lines());
  const Part part =
      part_of(static_cast<u32>(tail.batch) * lines, static_cast<u32>(tail.cluster), kGeometry.clusters);
#pragma unroll 1
  for (u32 i = part.begin + static_cast<u32>(tail.thread); i < part.end; i += kThreads) {
    const i32 token = static_cast<i32>(i / lines), line = tail.slice_begin() + static_cast<i32>(i % lines);
    device::Columns x;
    if (!sum_ranks<Region::latent>(tail, Site::latent_poll, token, line, x)) return false;
    stall<Site::reduced_publish>(tail.args, tail.block());
    Line* to = tail.view.mine<Line, Region::reduced>(tail.slot, 0, token) + 2 * line;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Line bits;
#pragma unroll
      for (int j = 0; j < 4; ++j) bits.word[j] = __float_as_uint(x.value[4 * half + j]);
      // An fp32 NaN may carry any payload; the sentinel's is one of them.
      device::store_relaxed_sys(to + half, protocol::cleaned(bits));
    }
  }
  return true;
}

/// Two-shot: this block's share of the column chunk that this rank owns, summed over ranks, rounded once and handed to every rank.
/// False after a fault.
MOETAIL_DEVICE bool sum_own_chunk(const Tail& tail) {
  stall<Site::twoshot_sum>(tail.args, tail.block());
  constexpr u32 kChunkLines = static_cast<u32>(kLatentLines / kRanks);
  const Part part =
      part_of(static_cast<u32>(tail.batch) * kChunkLines, static_cast<u32>(tail.block()), kBlocks);
#pragma unroll 1
  for (u32 i = part.begin + static_cast<u32>(tail.thread); i < part.end; i += kThreads) {
    const i32 token = static_cast<i32>(i / kChunkLines), line = static_cast<i32>(i % kChunkLines);
    device::Columns x;
    if (!sum_ranks<Region::recv>(tail, Site::twoshot_sum, token, line, x)) return false;
    stall<Site::gather_publish>(tail.args, tail.block());
    put(tail.args,
        place<Region::gather>(tail.slot, 0, token) +
            static_cast<u64>(tail.args.rank * static_cast<i32>(kChunkLines) + line) * protocol::kLineBytes,
        device::pack_line(x));
  }
  return true;
}

// Lines of summed rows that a thread has in flight.
inline constexpr i32 kSummedInFlight = kMaxBatch <= 8 ? 1 : 4;

/// Compute warps: rows that were summed elsewhere, out of `reduced` (two lines for eight columns) or `gather`. False after a fault.
template <Region kRegion>
MOETAIL_DEVICE bool take_summed(const Tail& tail, i32 tile) {
  constexpr bool kIsReduced = kRegion == Region::reduced;
  constexpr i32 kEach = kIsReduced ? 2 : 1;
  stall<kIsReduced ? Site::reduced_poll : Site::gather_poll>(tail.args, tail.block());
  const u32 lines = static_cast<u32>(tail.slice_lines()),
            count = static_cast<u32>(tokens_of(tail, tile)) * lines;
#pragma unroll 1
  for (u32 base = static_cast<u32>(tail.thread); base < count; base += kSummedInFlight * kComputeWarps * 32) {
    Line got[kSummedInFlight][kEach];
    const Line* from[kSummedInFlight];
    Waiter waiter = tail.waiter();
    Spot spot{kIsReduced ? Site::reduced_poll : Site::gather_poll, tail.args.rank};
#pragma unroll
    for (int u = 0; u < kSummedInFlight; ++u) {
      // Past the end the last item is taken again: nothing of it is used.
      const u32 i = base + u * kComputeWarps * 32 < count ? base + u * kComputeWarps * 32 : base;
      from[u] =
          tail.view.mine<Line, kRegion>(tail.slot, 0, tile * kGeometry.tile + static_cast<i32>(i / lines)) +
          kEach * (tail.slice_begin() + static_cast<i32>(i % lines));
    }
    const bool there = protocol::wait_until(waiter, spot, [&](Spot& where) {
#pragma unroll
      for (int u = 0; u < kSummedInFlight; ++u)
#pragma unroll
        for (int j = 0; j < kEach; ++j) got[u][j] = device::load_relaxed_sys(from[u] + j);
      int missing = 0;
#pragma unroll
      for (int u = 0; u < kSummedInFlight; ++u)
#pragma unroll
        for (int j = 0; j < kEach; ++j) missing += protocol::has_empty(got[u][j]) ? 1 : 0;
      if (missing != 0) {
        const i32 line = tail.slice_begin() + static_cast<i32>(base % lines);
        where.token = tile * kGeometry.tile + static_cast<i32>(base / lines);
        if constexpr (!kIsReduced) where.peer = line / (kLatentLines / kRanks);
      }
      return missing;
    });
    if (!there) return false;
#pragma unroll
    for (int u = 0; u < kSummedInFlight; ++u) {
      const u32 i = base + u * kComputeWarps * 32;
      if (i >= count) break;
      device::Columns x;
      if constexpr (kIsReduced) {
#pragma unroll
        for (int j = 0; j < 8; ++j) x.value[j] = __uint_as_float(got[u][j / 4].word[j % 4]);
      } else {
        x = device::columns_of(got[u][0]);
      }
      set_operand(tail, static_cast<i32>(i / lines), static_cast<i32>(i % lines), x);
    }
  }
  return true;
}

/// What makes rows ready that reduce_tile takes, once a call.
MOETAIL_DEVICE bool prepare_rows(const Tail& tail) {
  if constexpr (kMode == Mode::twoshot) return sum_own_chunk(tail);
  if constexpr (kShares) return share_latents(tail);
  return true;
}

/// Compute warps: the operand of a token tile, by the way of this kernel's mode.
MOETAIL_DEVICE bool reduce_tile(const Tail& tail, i32 tile) {
  if constexpr (kMode == Mode::twoshot)
    return take_summed<Region::gather>(tail, tile);
  else if constexpr (kShares)
    return take_summed<Region::reduced>(tail, tile);
  else
    return reduce_latents(tail, tile);
}

// Where an iteration's exchange lies in a block's shared memory.
MOETAIL_DEVICE u32 partials(const Tail& tail, const Iteration& it) {
  return tail.shared + kShared.partials + static_cast<u32>(it.exchange * partials_bytes(kCut, kGeometry));
}
MOETAIL_DEVICE u32 squares(const Tail& tail, const Iteration& it) {
  return tail.shared + kShared.squares + static_cast<u32>(it.exchange * squares_bytes(kGeometry));
}
MOETAIL_DEVICE u32 shared_sums(const Tail& tail, const Iteration& it) {
  return tail.shared + kShared.shared_sums + static_cast<u32>(it.exchange * sums_bytes(kCut, kGeometry));
}

/// First row of the shard that this block finishes in row block `row_block`.
MOETAIL_DEVICE i32 owned_row(const Tail& tail, i32 row_block) {
  return row_block * kGeometry.row_block + tail.slice * kCut.owner_rows;
}

/// The side warp, a token a lane: the shared partials of this block's rows, summed in rank order. False after a fault.
MOETAIL_DEVICE bool reduce_shared(const Tail& tail, const Iteration& it) {
  stall<Site::shared_poll>(tail.args, tail.block());
  const i32 row = owned_row(tail, it.row_block);
  if (row >= kShape.shard()) return true;
#pragma unroll 1
  for (i32 token = tail.lane; token < tokens_of(tail, it.tile); token += 32) {
    const i32 batch_token = it.tile * kGeometry.tile + token;
    device::Columns sum;
    // A front has its own shared partial at hand, and need not wait for the block that pushes it.
    Line own;
    if constexpr (kIsFront)
      if (!load_shared(tail,
                       static_cast<u32>(batch_token * kHiddenLines + tail.args.rank * kShardLines +
                                        row / protocol::kLineColumns),
                       own))
        return false;
    if (!sum_ranks<Region::shared>(tail, Site::shared_poll, batch_token, row / protocol::kLineColumns, sum,
                                   kIsFront ? &own : nullptr))
      return false;
    const u32 to = shared_sums(tail, it) + static_cast<u32>(token * kCut.owner_rows) * 4;
    const i32 first = row % protocol::kLineColumns;
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (kCut.owner_rows == 8 || (i >= first && i < first + kCut.owner_rows))
        device::store_shared(to + static_cast<u32>(i - first) * 4, sum.value[i]);
  }
  return true;
}

/// The polls of an iteration. False after a fault.
MOETAIL_DEVICE bool reduce_iteration(const Tail& tail, const Iteration& it) {
  if (tail.warp < kComputeWarps) return !is_first_of_tile(tail, it) || reduce_tile(tail, it.tile);
  return reduce_shared(tail, it);
}

}  // namespace moetail::kernels
