// SPDX-License-Identifier: Apache-2.0
// What else a call owes its peers and its successor: the header, the shared partial's shards, and the re-arm of what the previous
// call dirtied. All of it is spread over all blocks of the rank, away from the warps whose polls come first.
#pragma once

#include "kernels/latent.hpp"

namespace moetail::kernels {

// Warps that take such work. Where one warp holds all latents that a block polls, it goes from its publication to its polls.
inline constexpr i32 kErrandWarps = kMaxBatch <= 8 ? kComputeWarps : kComputeWarps + 1;
inline constexpr i32 kErrandThreads = 32 * kErrandWarps;

/// Where a front's re-arm holds up least: at 16 tokens while the exchange is under way, 5.06 us a layer instead of 5.25; else between
/// publication and polls, where 8 and 32 tokens lose less (H200, 2026-11-30).
inline constexpr bool kRearmsInExchange = kIsFront && kMaxBatch == 16 && !kRearmsLate;

/// The order in which a block's threads take it: the highest warp below the side warp first, since small batches are polled by the
/// lowest, then the side warp, and the first last, or not at all. At B = 8 the spread took 3 us off against one warp a block (H200
/// probe).
MOETAIL_DEVICE i32 errand_thread(const Tail& tail) {
  const i32 warp = tail.warp == 0           ? kSideWarp
                   : tail.warp == kSideWarp ? kSideWarp - 1
                                            : kSideWarp - 1 - tail.warp;
  return warp * 32 + tail.lane;
}

/// The warp of block 0 that waits for the peers' headers.
inline constexpr i32 kHeaderWarp = kSideWarp - 1;

MOETAIL_DEVICE protocol::Header header_of(const Tail& tail) {
  return {static_cast<u32>(tail.batch), static_cast<u32>(kMode), static_cast<u32>(tail.args.call.layer),
          kShapeHash};
}

/// Lane r of one warp tells rank r.
MOETAIL_DEVICE void publish_header(const Tail& tail) {
  stall<Site::header_publish>(tail.args, tail.block());
  if (tail.lane >= kRanks) return;
  const u64 word = protocol::pack_header(header_of(tail));
  u32* to = tail.view.at<u32>(tail.lane, place<Region::header>(tail.slot, tail.args.rank, 0));
  device::store_relaxed_sys(to, static_cast<u32>(word));
  device::store_relaxed_sys(to + 1, static_cast<u32>(word >> 32));
}

/// Lane r of one warp waits for the header of rank r, another one, and compares it with this rank's. False after a fault.
MOETAIL_DEVICE bool check_header(const Tail& tail) {
  stall<Site::header_poll>(tail.args, tail.block());
  if (tail.lane >= kRanks || tail.lane == tail.args.rank) return true;
  const u32* from = tail.view.mine<u32, Region::header>(tail.slot, tail.lane, 0);
  Waiter waiter = tail.waiter();
  Spot spot{Site::header_poll, tail.lane};
  u64 word = 0;
  const bool there = protocol::wait_until(waiter, spot, [&](Spot&) {
    const u32 low = device::load_relaxed_sys(from), high = device::load_relaxed_sys(from + 1);
    word = static_cast<u64>(high) << 32 | low;
    return protocol::is_empty(low) || protocol::is_empty(high) ? 1 : 0;
  });
  if (!there) return false;
  const protocol::Header mine = header_of(tail), theirs = protocol::unpack_header(word);
  spot.field = protocol::header_difference(mine, theirs);
  if (spot.field == protocol::HeaderField::none) return true;
  spot.expected = protocol::header_field_value(mine, spot.field);
  spot.seen = protocol::header_field_value(theirs, spot.field);
  raise_fault(tail.args, tail.epoch(), FaultKind::header_mismatch, spot, 0);
  return false;
}

/// A line of this rank's shared partial, given or, in front_poll, polled. False after a fault.
MOETAIL_DEVICE bool load_shared(const Tail& tail, u32 index, Line& line) {
  if constexpr (kPollsShared) {
    const i32 token = static_cast<i32>(index / kHiddenLines);
    const Line* from =
        tail.view.mine<Line, Region::polled_shared>(tail.slot, 0, token) + index % kHiddenLines;
    Waiter waiter = tail.waiter();
    Spot spot{Site::rows_poll, tail.args.rank, token};
    return protocol::wait_until(waiter, spot, [&](Spot&) {
      line = device::load_relaxed_sys(from);
      return protocol::has_empty(line) ? 1 : 0;
    });
  } else {
    line = protocol::cleaned(device::load_weak(reinterpret_cast<const Line*>(tail.args.call.shared) + index));
    return true;
  }
}

/// Lines of a shard, of all tokens, that part `part` of `parts` pushes: the same ones to every rank.
MOETAIL_DEVICE Part shard_part(const Tail& tail, i32 part, i32 parts) {
  return part_of(static_cast<u32>(tail.batch) * kShardLines, static_cast<u32>(part), static_cast<u32>(parts));
}

/// Part `part` of `parts` of the shared partial, to the ranks that own its columns. Every part has lines of every rank's shard, its own
/// too: from a side stream, that the tail polls those is what keeps the epoch from advancing before this block has read it. False
/// after a fault.
MOETAIL_DEVICE bool push_shards(const Tail& tail, i32 errand, i32 part, i32 parts) {
  stall<Site::shared_push>(tail.args, tail.block());
  const Part lines = shard_part(tail, part, parts);
  const u32 count = lines.end - lines.begin;
  bool fine = true;
#pragma unroll 1
  for (u32 i = static_cast<u32>(errand); i < count * kRanks; i += kErrandThreads) {
    const u32 owner = (static_cast<u32>(tail.args.rank) + i / count) % kRanks, at = lines.begin + i % count;
    const u32 token = at / kShardLines, column = at % kShardLines;
    Line line;
    if (!load_shared(tail, token * kHiddenLines + owner * kShardLines + column, line)) {
      fine = false;
      continue;
    }
    const u64 where = place<Region::shared>(tail.slot, tail.args.rank, static_cast<i32>(token)) +
                      static_cast<u64>(column) * protocol::kLineBytes;
    device::store_relaxed_sys(tail.view.at<Line>(static_cast<i32>(owner), where), line);
  }
  return fine;
}

MOETAIL_DEVICE bool is_dirty(const Tail& tail, Region region) {
  return (tail.previous.regions & protocol::region_bit(region)) != 0;
}

/// Fills the previous batch's rows of every source's mailbox with the sentinel. A warp takes a source, or more of them one, and a lane a
/// line. What other sources own is re-armed in the box that the host named for it.
template <Region kRegion>
MOETAIL_DEVICE void rearm_region(const Tail& tail, i32 slot, i32 errand, i32 part, i32 parts) {
  if (!is_dirty(tail, kRegion)) return;
  constexpr bool kPerSource = protocol::spec_of(kRegion).per_source;
  constexpr i32 kSources = kPerSource ? kRanks : 1;
  // Warps that share a source's lines, the first of them one source and the next the next one.
  constexpr i32 kWarpsEach = kErrandWarps / kSources > 0 ? kErrandWarps / kSources : 1;
  constexpr u32 kStep = 32 * kWarpsEach;
  const u32 warp = static_cast<u32>(errand) / 32;
  const u32 first = warp / kSources * 32 + static_cast<u32>(tail.lane);
  if (first >= kStep) return;
  constexpr u32 kRowLines = static_cast<u32>(kRowBytes<kRegion> / protocol::kLineBytes);
  const Part mine = part_of(tail.previous.batch * kRowLines, part, parts);
  const Line empty = protocol::line_of(protocol::kEmptyWord);
#pragma unroll 1
  for (i32 source = static_cast<i32>(warp % kSources); source < kSources; source += kErrandWarps) {
    u8* box =
        kPerSource && source != tail.args.rank ? tail.args.rearm_others : tail.args.peer[tail.args.rank];
#pragma unroll 1
    for (u32 i = mine.begin + first; i < mine.end; i += kStep) {
      // A gathered row has one owner a chunk of its columns.
      if constexpr (kRegion == Region::gather)
        box = i % kRowLines / (kLatentLines / kRanks) == static_cast<u32>(tail.args.rank)
                  ? tail.args.peer[tail.args.rank]
                  : tail.args.rearm_others;
      device::store_weak(reinterpret_cast<Line*>(box + place<kRegion>(slot, source, 0)) + i, empty);
    }
  }
}

/// Rows of W and headers are no whole lines.
template <Region kRegion>
MOETAIL_DEVICE void rearm_words(const Tail& tail, i32 slot, i32 errand, i32 part, i32 parts) {
  if (!is_dirty(tail, kRegion)) return;
  constexpr bool kIsHeader = kRegion == Region::header;
  const u32 words = kIsHeader ? 2 * kRanks : static_cast<u32>(tail.previous.batch * kShape.top_k);
  const Part mine = part_of(words, part, parts);
#pragma unroll 1
  for (u32 i = mine.begin + static_cast<u32>(errand); i < mine.end; i += kErrandThreads) {
    u8* box = kIsHeader && i / 2 != static_cast<u32>(tail.args.rank) ? tail.args.rearm_others
                                                                     : tail.args.peer[tail.args.rank];
    device::store_weak(reinterpret_cast<u32*>(box + place<kRegion>(slot, 0, 0)) + i, protocol::kEmptyWord);
  }
}

/// What calls of other modes than front dirtied: out of line, since most calls follow one of their own kind.
MOETAIL_COLD void rearm_others(const Tail tail, i32 slot, i32 errand, i32 part, i32 parts) {
  rearm_region<Region::reduced>(tail, slot, errand, part, parts);
  if constexpr (protocol::allows_twoshot(kShape)) {
    rearm_region<Region::recv>(tail, slot, errand, part, parts);
    rearm_region<Region::gather>(tail, slot, errand, part, parts);
  }
  if constexpr (kShape.poll_capacity > 0) {
    rearm_region<Region::rows>(tail, slot, errand, part, parts);
    rearm_region<Region::polled_shared>(tail, slot, errand, part, parts);
    rearm_words<Region::weights>(tail, slot, errand, part, parts);
  }
}

/// Part `part` of `parts` of the re-arm, by the previous call's record. Its stores need no order inside the launch: the next
/// publication into this slot comes two calls later (docs/protocol.md, "Why the re-arm needs no order").
MOETAIL_DEVICE void rearm_previous(const Tail& tail, i32 errand, i32 part, i32 parts) {
  if (errand >= kErrandThreads) return;
  stall<Site::rearm>(tail.args, tail.block());
  constexpr u32 kFront = protocol::dirtied_regions(Mode::front, false, false, false);
  const i32 slot = tail.slot == 0 ? protocol::kRingSlots - 1 : tail.slot - 1;  // protocol::rearm_slot_of
  rearm_region<Region::latent>(tail, slot, errand, part, parts);
  rearm_region<Region::shared>(tail, slot, errand, part, parts);
  rearm_words<Region::header>(tail, slot, errand, part, parts);
  if ((tail.previous.regions & ~kFront) != 0) rearm_others(tail, slot, errand, part, parts);
}

/// What this call leaves for the next one's re-arm.
MOETAIL_DEVICE protocol::Record record_of(const Tail& tail) {
  // A user who was given the slots may have filled any of them, whether this call then polled them or not.
  constexpr bool kGaveSlots = kMode == Mode::front_poll;
  return {tail.batch, protocol::dirtied_regions(kMode, kShares, kGaveSlots, kGaveSlots)};
}

/// The record, then the epoch of the next call.
MOETAIL_DEVICE void advance_epoch(const Tail& tail) {
  const u64 record = protocol::pack_record(record_of(tail));
  if (protocol::record_word(tail.epoch()) == Control::record_even)
    device::store_relaxed_sys(tail.view.control<Control::record_even>(), record);
  else
    device::store_relaxed_sys(tail.view.control<Control::record_odd>(), record);
  device::store_relaxed_sys(tail.view.control<Control::epoch>(), tail.epoch() + 1);
}

/// Everything of this file that a front tail does between its own publication and its polls. False after a fault.
MOETAIL_DEVICE bool run_errands(const Tail& tail) {
  const i32 errand = errand_thread(tail);
  if (errand >= kErrandThreads) return true;
  if constexpr (!protocol::kLastBlockAdvances)
    if (errand == 0 && tail.block() == 0) advance_epoch(tail);
  if (tail.block() == 0 && tail.warp == kSideWarp) publish_header(tail);
  bool alive = push_shards(tail, errand, tail.block(), kBlocks);
  mark<Mark::pushed>(tail);
  if constexpr (!kRearmsLate && !kRearmsInExchange) rearm_previous(tail, errand, tail.block(), kBlocks);
  // The warp whose latents come last: blocks that do not compare find out by the poison that a mismatch leaves.
  if (alive && tail.block() == 0 && tail.warp == kHeaderWarp) alive = check_header(tail);
  return alive;
}

/// One thread of each block of the rank, once all threads of its block have used the epoch and ended their polls, and when what others
/// wait for has left. The last block leaves the record and advances the epoch: every reader of it has read it then, those of push
/// and publish too, because they stored what was polled after they had read it.
///
/// Relaxed, because it passes on no data: what must come before the new epoch is loads of the old one whose values were used before
/// the block's barrier, and those cannot change any more. An acquire-release counter fences behind the output's stores instead.
MOETAIL_DEVICE void end_call(const Tail& tail) {
  const u64 arrived = device::add_relaxed_gpu(tail.view.control<Control::arrivals>(), 1);
  if (arrived + 1 != static_cast<u64>(kBlocks)) return;
  device::store_relaxed_sys(tail.view.control<Control::arrivals>(), u64{0});
  if constexpr (protocol::kLastBlockAdvances) advance_epoch(tail);
}

}  // namespace moetail::kernels
