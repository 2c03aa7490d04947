// SPDX-License-Identifier: Apache-2.0
// What else a call owes its peers and its successor: the header, the shared partial's shards, and the re-arm of what the previous
// call dirtied. All of it is spread over all blocks of the rank, away from the warps whose polls come first.
#pragma once

#include "kernels/latent.hpp"

namespace moetail::kernels {

// Warps that take such work. Where one warp holds all latents that a block polls, it goes from its publication to its polls, and the side warp to
// the shared partials: these two are whom the product and the output wait for.
inline constexpr i32 kErrandWarps = kMaxBatch <= 8 ? kComputeWarps - 1 : kComputeWarps + 1;
inline constexpr i32 kErrandThreads = 32 * kErrandWarps;

/// A front of few tokens: the highest compute warp, which has no latents to poll, re-arms while the others poll all that a block has to. Up to 4 tokens
/// no store then stands before a poll or an output row: 0.2 us at T = 16, one token, and at T = 8, two (H200, 2026-11-30).
inline constexpr bool kIdleWarpRearms =
    kPublishes && !kSumsOnce && !kRearmsLate && kGeometry.exchanges == 1 && kMaxBatch <= 4;

/// Else a front's re-arm of so few, and of 16, holds up least while the exchange is under way, and others between publication and polls.
inline constexpr bool kRearmsInExchange =
    kPublishes && !kSumsOnce && !kRearmsLate && !kIdleWarpRearms && (kMaxBatch <= 4 || kMaxBatch == 16);
inline constexpr i32 kRearmWarps = kIdleWarpRearms                       ? 1
                                   : kRearmsInExchange && kMaxBatch <= 8 ? kErrandWarps + 1
                                                                         : kErrandWarps;

/// The order in which a block's threads take it: the highest compute warp first, since small batches are polled by the lowest. The side warp, which
/// polls little of many tokens, before it; of few after those that share them. At B = 8 the spread took 3 us off against one warp a block (H200 probe).
MOETAIL_DEVICE i32 errand_thread(const Tail& tail) {
  const i32 warp = kMaxBatch > 8            ? kSideWarp - tail.warp
                   : tail.warp == 0         ? kSideWarp
                   : tail.warp == kSideWarp ? kSideWarp - 1
                                            : kSideWarp - 1 - tail.warp;
  return warp * 32 + tail.lane;
}

/// The warps of block 0 that wait for the peers' headers and send this rank's. Of many tokens it is the one that has the fewest rows to sum for
/// others, none in the plan's own kernels up to 128, so that ranks that disagree find it out before a wait for rows ends.
inline constexpr i32 kHeaderWarp = kMaxBatch <= 8 ? 2 : kSideWarp,
                     kSendsHeaderWarp = kMaxBatch <= 8 ? 3 : kSideWarp;

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

/// A line of this rank's shared partial, as given or, in front_poll, polled. False after a fault.
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
    line = device::load_weak(reinterpret_cast<const Line*>(tail.args.call.shared) + index);
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
  if (static_cast<u32>(errand) >= count * kRanks) return true;
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
    device::store_relaxed_sys(tail.view.at<Line>(static_cast<i32>(owner), where), protocol::cleaned(line));
  }
  return fine;
}

MOETAIL_DEVICE bool is_dirty(const Tail& tail, Region region) {
  return (tail.previous.regions & protocol::region_bit(region)) != 0;
}

/// One warp: the previous batch's rows of every source's mailbox filled with the sentinel, a few lanes a source, so that one store has lines of all.
template <Region kRegion>
MOETAIL_DEVICE void rearm_sources(const Tail& tail, i32 slot, i32 part, i32 parts) {
  static_assert(protocol::spec_of(kRegion).per_source);
  constexpr u32 kLanes = 32 / kRanks;
  constexpr u32 kRowLines = static_cast<u32>(kRowBytes<kRegion> / protocol::kLineBytes);
  const u32 lane = static_cast<u32>(tail.lane);
  const i32 source = static_cast<i32>(lane / kLanes);
  u8* box = kKeepsMailboxes || source != tail.args.rank ? tail.args.rearm_others : tail.view.own;
  Line* to = reinterpret_cast<Line*>(box + place<kRegion>(slot, source, 0));
  const Part lines = part_of(tail.previous.batch * kRowLines, part, parts);
#pragma unroll 1
  for (u32 i = lines.begin + lane % kLanes; i < lines.end; i += kLanes)
    device::store_weak(to + i, protocol::line_of(protocol::kEmptyWord));
}

/// Fills the previous batch's rows of every source's mailbox with the sentinel. A warp takes a source, or more of them one, and a lane a
/// line. What other sources own is re-armed in the box that the host named for it.
template <Region kRegion>
MOETAIL_DEVICE void rearm_region(const Tail& tail, i32 slot, i32 errand, i32 part, i32 parts) {
  if (!is_dirty(tail, kRegion)) return;
  constexpr bool kPerSource = protocol::spec_of(kRegion).per_source;
  if constexpr (kPerSource && kIdleWarpRearms) return rearm_sources<kRegion>(tail, slot, part, parts);
  constexpr i32 kSources = kPerSource ? kRanks : 1;
  // Warps that share a source's lines, the first of them one source and the next the next one.
  constexpr i32 kWarpsEach = kRearmWarps / kSources > 0 ? kRearmWarps / kSources : 1;
  constexpr u32 kStep = 32 * kWarpsEach;
  const u32 warp = static_cast<u32>(errand) / 32;
  const u32 first = warp / kSources * 32 + static_cast<u32>(tail.lane);
  if (first >= kStep) return;
  constexpr u32 kRowLines = static_cast<u32>(kRowBytes<kRegion> / protocol::kLineBytes);
  const Part mine = part_of(tail.previous.batch * kRowLines, part, parts);
  const Line empty = protocol::line_of(protocol::kEmptyWord);
#pragma unroll 1
  for (i32 source = kRearmWarps < kSources ? kRearmWarps - 1 - static_cast<i32>(warp)
                                           : static_cast<i32>(warp % kSources);
       source < kSources; source += kRearmWarps) {
    u8* box =
        kKeepsMailboxes || (kPerSource && source != tail.args.rank) ? tail.args.rearm_others : tail.view.own;
#pragma unroll 1
    for (u32 i = mine.begin + first; i < mine.end; i += kStep) {
      // A gathered row has one owner a chunk of its columns.
      if constexpr (kRegion == Region::gather)
        box = !kKeepsMailboxes && i % kRowLines / (kLatentLines / kRanks) == static_cast<u32>(tail.args.rank)
                  ? tail.view.own
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
  for (u32 i = mine.begin + static_cast<u32>(errand); i < mine.end; i += 32 * kRearmWarps) {
    u8* box = kKeepsMailboxes || (kIsHeader && i / 2 != static_cast<u32>(tail.args.rank))
                  ? tail.args.rearm_others
                  : tail.view.own;
    device::store_weak(reinterpret_cast<u32*>(box + place<kRegion>(slot, 0, 0)) + i, protocol::kEmptyWord);
  }
}

// What calls of this kernel's kind dirty. A user who was given the polled slots may have filled any of them, whether the call then polled them
// or not.
inline constexpr u32 kOwnRegions =
    protocol::dirtied_regions(kMode, kShares, kMode == Mode::front_poll, kMode == Mode::front_poll);
template <Region kRegion>
inline constexpr bool kIsOwn = (kOwnRegions & protocol::region_bit(kRegion)) != 0;

/// The regions that calls of this kernel's kind dirty, or the others.
template <bool kOwn>
MOETAIL_DEVICE void rearm_regions(const Tail& tail, i32 slot, i32 errand, i32 part, i32 parts) {
  if constexpr (kIsOwn<Region::latent> == kOwn) rearm_region<Region::latent>(tail, slot, errand, part, parts);
  if constexpr (kIsOwn<Region::shared> == kOwn) rearm_region<Region::shared>(tail, slot, errand, part, parts);
  if constexpr (kIsOwn<Region::header> == kOwn) rearm_words<Region::header>(tail, slot, errand, part, parts);
  if constexpr (kIsOwn<Region::reduced> == kOwn)
    rearm_region<Region::reduced>(tail, slot, errand, part, parts);
  if constexpr (protocol::allows_twoshot(kShape) && kIsOwn<Region::recv> == kOwn) {
    rearm_region<Region::recv>(tail, slot, errand, part, parts);
    rearm_region<Region::gather>(tail, slot, errand, part, parts);
  }
  if constexpr (kShape.poll_capacity > 0 && kIsOwn<Region::rows> == kOwn) {
    rearm_region<Region::rows>(tail, slot, errand, part, parts);
    rearm_region<Region::polled_shared>(tail, slot, errand, part, parts);
    rearm_words<Region::weights>(tail, slot, errand, part, parts);
  }
}

/// Out of line, since most calls follow one of their own kind.
MOETAIL_COLD void rearm_others(const Tail tail, i32 slot, i32 errand, i32 part, i32 parts) {
  rearm_regions<false>(tail, slot, errand, part, parts);
}

/// Part `part` of `parts` of the re-arm, by the previous call's record. Its stores need no order inside the launch: the next
/// publication into this slot comes two calls later (docs/protocol.md, "Why the re-arm needs no order").
MOETAIL_DEVICE void rearm_previous(const Tail& tail, i32 errand, i32 part, i32 parts) {
  if (errand >= 32 * kRearmWarps) return;
  stall<Site::rearm>(tail.args, tail.block());
  const i32 slot = tail.slot == 0 ? protocol::kRingSlots - 1 : tail.slot - 1;  // protocol::rearm_slot_of
  each_time<Stage::rearm>([&] { rearm_regions<true>(tail, slot, errand, part, parts); });
  if ((tail.previous.regions & ~kOwnRegions) != 0) rearm_others(tail, slot, errand, part, parts);
}

/// What this call leaves for the next one's re-arm.
MOETAIL_DEVICE protocol::Record record_of(const Tail& tail) {
  return {tail.batch, kOwnRegions};
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

/// A tail whose call has no other launch that reads the epoch: its blocks may arrive as soon as each has its control words. Else a block arrives
/// behind its polls, which push, publish and producers have stored to after they had read it.
inline constexpr bool kArrivesEarly = kPublishes && kPushes && kMode != Mode::front_poll;

/// One thread of each block of the rank, once its block has the control words and, unless kArrivesEarly, has ended its polls. Returns how many
/// were there before.
///
/// Relaxed, because it passes on no data: what must come before the new epoch is loads of the old one whose values were used before
/// it, and those cannot change any more. An acquire-release counter fences behind the output's stores instead.
MOETAIL_DEVICE u32 arrive(const Tail& tail) {
  if constexpr (kTimes<Stage::epoch> == 0) return 0;
  return static_cast<u32>(device::add_relaxed_gpu(tail.view.control<Control::arrivals>(), 1));
}

/// The same thread: the last block leaves the record and advances the epoch, since every reader of it has read it.
MOETAIL_DEVICE void end_call(const Tail& tail, u32 arrived) {
  if (kTimes<Stage::epoch> == 0 || arrived + 1 != static_cast<u32>(kBlocks)) return;
  device::store_relaxed_sys(tail.view.control<Control::arrivals>(), u64{0});
  if constexpr (protocol::kLastBlockAdvances) advance_epoch(tail);
}

}  // namespace moetail::kernels
