// SPDX-License-Identifier: Apache-2.0
// Polls: the latents of a token tile summed in rank order and made the matrix operand bf16(gamma * x) of this K slice, and the
// shared partials of the rows that this block finishes.
#pragma once

#include "kernels/spread.hpp"
#include "kernels/weights.hpp"

namespace moetail::kernels {

// Mailboxes whose lines one thread has in flight: all of them where registers allow, since each further pass is a trip to memory. Fewer with
// three blocks an SM, polled slots of many tokens, or what else a two-shot or sharing tail of more than eight ranks has to keep.
inline constexpr bool kIsShortOfRegisters =
    kMinBlocks >= 3 || (kPollsSlots && kMaxBatch > 8) || (kSumsOnce && kRanks > 8);
inline constexpr i32 kMaxRanksInFlight = kIsShortOfRegisters ? 4 : kMaxBatch > 8 || kPollsSlots ? 8 : 16;
inline constexpr i32 kRanksInFlight = kRanks < kMaxRanksInFlight ? kRanks : kMaxRanksInFlight;

/// The same line of every rank's mailbox, summed in rank order. `own`: this rank's line as given, where the caller has it, or null. False
/// after a fault.
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
      for (int r = 0; r < kRanksInFlight; ++r)
        lines[r] = device::load_relaxed_sys(
            reinterpret_cast<const Line*>(first + static_cast<u64>(begin + r) * kSourceBytes<kRegion>));
      if (own != nullptr) {
        // Behind the loads: what it is cleaned of is looked for when it has come.
        const Line mine = protocol::cleaned(*own);
#pragma unroll
        for (int r = 0; r < kRanksInFlight; ++r)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            lines[r].word[i] = begin + r == tail.args.rank ? mine.word[i] : lines[r].word[i];
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

/// Compute warps: eight lanes a line. False after a fault.
MOETAIL_DEVICE bool spread_latents(const Tail& tail, i32 tile) {
  stall<Site::latent_poll>(tail.args, tail.block());
  const i32 lines = tail.slice_lines(), count = tokens_of(tail, tile) * lines;
#pragma unroll 1
  for (i32 base = tail.warp * kWarpLines; base < count; base += kComputeWarps * kWarpLines) {
    const bool on = base + tail.lane / kLineLanes < count;
    const i32 item = on ? base + tail.lane / kLineLanes : base;
    const i32 tile_token = item / lines, line = item % lines;
    float x = 0.0f;
    bool there = true;
    each_time<Stage::polls>([&] {
      there = sum_column<Region::latent>(tail, Site::latent_poll, on, tile * kGeometry.tile + tile_token,
                                         tail.slice_begin() + line, x);
    });
    if (!there) return false;
    set_operand_column(tail, on, tile_token, line, x);
  }
  return true;
}

/// Compute warps: a line a thread, every rank's latent of it. False after a fault.
MOETAIL_DEVICE bool reduce_latents(const Tail& tail, i32 tile) {
  if constexpr (kSpreads) return spread_latents(tail, tile);
  stall<Site::latent_poll>(tail.args, tail.block());
  const u32 lines = static_cast<u32>(tail.slice_lines()),
            count = static_cast<u32>(team_tokens(tail, tile)) * lines;
#pragma unroll 1
  for (u32 i = static_cast<u32>(team_thread(tail)); i < count; i += kTeamThreads) {
    const i32 tile_token = team_token(tail, static_cast<i32>(i / lines)), line = static_cast<i32>(i % lines);
    device::Columns x;
    if constexpr (kTimes<Stage::polls> == 0) x = {};
    bool there = true;
    each_time<Stage::polls>([&] {
      there = sum_ranks<Region::latent>(tail, Site::latent_poll, tile * kGeometry.tile + tile_token,
                                        tail.slice_begin() + line, x);
    });
    if (!there) return false;
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
    put(tail.view,
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
            count = static_cast<u32>(team_tokens(tail, tile)) * lines;
  const auto token_of = [&](u32 i) { return team_token(tail, static_cast<i32>(i / lines)); };
#pragma unroll 1
  for (u32 base = static_cast<u32>(team_thread(tail)); base < count; base += kSummedInFlight * kTeamThreads) {
    Line got[kSummedInFlight][kEach];
    const Line* from[kSummedInFlight];
    Waiter waiter = tail.waiter();
    Spot spot{kIsReduced ? Site::reduced_poll : Site::gather_poll, tail.args.rank};
#pragma unroll
    for (int u = 0; u < kSummedInFlight; ++u) {
      // Past the end the last item is taken again: nothing of it is used.
      const u32 i = base + u * kTeamThreads < count ? base + u * kTeamThreads : base;
      from[u] = tail.view.mine<Line, kRegion>(tail.slot, 0, tile * kGeometry.tile + token_of(i)) +
                kEach * (tail.slice_begin() + static_cast<i32>(i % lines));
    }
    const auto look = [&](Spot& where) {
#pragma unroll
      for (int u = 0; u < kSummedInFlight; ++u)
#pragma unroll
        for (int j = 0; j < kEach; ++j) got[u][j] = device::load_relaxed_sys(from[u] + j);
      int missing = 0;
      u32 lost = base;  // the first item that is
#pragma unroll
      for (int u = 0; u < kSummedInFlight; ++u)
#pragma unroll
        for (int j = 0; j < kEach; ++j)
          if (protocol::has_empty(got[u][j]) && missing++ == 0 && base + u * kTeamThreads < count)
            lost = base + u * kTeamThreads;
      if (missing != 0) {
        const i32 line = tail.slice_begin() + static_cast<i32>(lost % lines);
        where.token = tile * kGeometry.tile + token_of(lost);
        if constexpr (!kIsReduced) where.peer = line / (kLatentLines / kRanks);
      }
      return missing;
    };
    bool there = true;
    each_time<Stage::polls>([&] { there = protocol::wait_until(waiter, spot, look); });
    if (!there) return false;
#pragma unroll
    for (int u = 0; u < kSummedInFlight; ++u) {
      const u32 i = base + u * kTeamThreads;
      if (i >= count) break;
      device::Columns x;
      if constexpr (kIsReduced) {
#pragma unroll
        for (int j = 0; j < 8; ++j) x.value[j] = __uint_as_float(got[u][j / 4].word[j % 4]);
      } else {
        x = device::columns_of(got[u][0]);
      }
      set_operand(tail, token_of(i), static_cast<i32>(i % lines), x);
    }
  }
  return true;
}

/// What makes rows ready that reduce_tile takes, once a call, where blocks sum for others. False after a fault.
MOETAIL_DEVICE bool prepare_rows(const Tail& tail) {
  bool alive = true;
  if constexpr (kSumsOnce) {
    each_time<Stage::sums>([&] {
      if constexpr (kMode == Mode::twoshot)
        alive = sum_own_chunk(tail);
      else
        alive = share_latents(tail);
    });
    mark<Mark::prepared>(tail);
  }
  return alive;
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
  return tail.shared + kShared.squares + static_cast<u32>(it.exchange * squares_bytes(kCut, kGeometry));
}
MOETAIL_DEVICE u32 shared_sums(const Tail& tail, const Iteration& it) {
  return tail.shared + kShared.shared_sums + static_cast<u32>(it.exchange * sums_bytes(kCut, kGeometry));
}

/// First row of the shard that this block finishes in row block `row_block`.
MOETAIL_DEVICE i32 owned_row(const Tail& tail, i32 row_block) {
  return row_block * kGeometry.row_block + tail.slice * kCut.owner_rows;
}

/// Item `i` of the shared partials that a block polls in the iterations [first, first + count) of one tile: a token of an iteration.
struct SharedItem {
  Iteration it;
  i32 tile_token, batch_token, row;
};
MOETAIL_DEVICE SharedItem shared_item(const Tail& tail, i32 first, i32 tokens, i32 i) {
  const Iteration it = iteration_of(tail, kExchangesAreOwn ? first + i / tokens : first);
  const i32 token = kExchangesAreOwn ? i % tokens : i;
  return {it, token, it.tile * kGeometry.tile + token, owned_row(tail, it.row_block)};
}

/// This rank's own line of it, which a tail that pushes has at hand: it need not wait for the block that sends it. False after a fault.
MOETAIL_DEVICE bool own_shared(const Tail& tail, const SharedItem& item, Line& own) {
  return load_shared(tail,
                     static_cast<u32>(item.batch_token * kHiddenLines + tail.args.rank * kShardLines +
                                      item.row / protocol::kLineColumns),
                     own);
}

MOETAIL_DEVICE void set_shared_sum(const Tail& tail, const SharedItem& item, i32 column, float sum) {
  const i32 owned = column - item.row % protocol::kLineColumns;
  if (kCut.owner_rows != 8 && (owned < 0 || owned >= kCut.owner_rows)) return;
  device::store_shared(
      shared_sums(tail, item.it) + static_cast<u32>(item.tile_token * kCut.owner_rows + owned) * 4, sum);
}

/// The side warp, eight lanes an item: the same of a few tokens. False after a fault.
MOETAIL_DEVICE bool spread_shared(const Tail& tail, i32 first, i32 count) {
  stall<Site::shared_poll>(tail.args, tail.block());
  const i32 tokens = tokens_of(tail, iteration_of(tail, first).tile), items = tokens * count;
#pragma unroll 1
  for (i32 base = 0; base < items; base += kWarpLines) {
    const i32 i = base + tail.lane / kLineLanes;
    const SharedItem item = shared_item(tail, first, tokens, i < items ? i : base);
    const bool on = i < items && item.row < kShape.shard();
    Line own{};
    if constexpr (kPushes) {
      bool there = true;
      if (on && tail.lane % kLineLanes == tail.args.rank % kLineLanes) there = own_shared(tail, item, own);
      if constexpr (kPollsShared)
        if (__ballot_sync(~0u, !there) != 0) return false;
    }
    float sum = 0.0f;
    if (!sum_column<Region::shared>(tail, Site::shared_poll, on, item.batch_token,
                                    item.row / protocol::kLineColumns, sum, kPushes ? &own : nullptr))
      return false;
    if (on) set_shared_sum(tail, item, tail.lane % kLineLanes, sum);
  }
  return true;
}

/// A lane: the shared partials of one item, summed in rank order. False after a fault.
MOETAIL_DEVICE bool reduce_shared_item(const Tail& tail, const SharedItem& item) {
  if (item.row >= kShape.shard()) return true;
  device::Columns sum;
  Line own{};
  if constexpr (kPushes)
    if (!own_shared(tail, item, own)) return false;
  if (!sum_ranks<Region::shared>(tail, Site::shared_poll, item.batch_token, item.row / protocol::kLineColumns,
                                 sum, kPushes ? &own : nullptr))
    return false;
#pragma unroll
  for (int j = 0; j < 8; ++j) set_shared_sum(tail, item, j, sum.value[j]);
  return true;
}

/// The side warp, an item a lane: the shared partials of this block's rows in those iterations. False after a fault.
MOETAIL_DEVICE bool reduce_shared(const Tail& tail, i32 first, i32 count) {
  if constexpr (kSpreads) return spread_shared(tail, first, count);
  stall<Site::shared_poll>(tail.args, tail.block());
  const i32 tokens = tokens_of(tail, iteration_of(tail, first).tile);
#pragma unroll 1
  for (i32 i = tail.lane; i < tokens * count; i += 32)
    if (!reduce_shared_item(tail, shared_item(tail, first, tokens, i))) return false;
  return true;
}

/// The polls of the iterations [first, first + count) of one tile: the operand is the compute warps', and the side warp, which none of them waits for,
/// leaves the sums of the shared partials to those who finish rows. False after a fault.
MOETAIL_DEVICE bool reduce_iterations(const Tail& tail, i32 first, i32 count, bool alive) {
  const Iteration it = iteration_of(tail, first);
  if (tail.warp == kSideWarp) {
    if constexpr (!kSidePollsShared) return alive;
    if (alive) each_time<Stage::shared_polls>([&] { alive = reduce_shared(tail, first, count); });
    if (!alive) tail.set_failed();
    __syncwarp();
    if (tail.lane == 0) device::arrive_barrier(tail.sums_barrier());
    return alive;
  }
  return alive && (!is_first_of_tile(tail, it) || reduce_tile(tail, it.tile));
}

}  // namespace moetail::kernels
