// SPDX-License-Identifier: Apache-2.0
// Who multiplies what. Warps of one row group divide the tokens of a tile between them; where they are many they are two teams, each of which polls
// and multiplies tokens of its own and waits for nobody else, so that one sends its products while the other still multiplies.
#pragma once

#include "kernels/tail.hpp"

namespace moetail::kernels {

static_assert(kComputeWarps % kRowGroups == 0,
              "row_block is 16, 32, 64 or 128: every compute warp has one m16 tile");
inline constexpr i32 kTokenGroups =
    kComputeWarps / kRowGroups;  ///< warps that share a m16 tile, and divide the tokens
inline constexpr i32 kTokenTiles = kCut.padded_tile / 8;
// n8 tiles go in pairs, whose four values a lane sends as one piece of 16 bytes; a warp has up to four pairs in registers.
inline constexpr i32 kTilePairs = kTokenTiles / 2;
// Pairs that a warp multiplies at a time: weights are read from shared memory once for all of them.
inline constexpr i32 kPairsAtOnce = kTilePairs / kTokenGroups >= 2 ? 2 : 1;
static_assert(kTilePairs % kPairsAtOnce == 0, "a tile above 16 tokens is 32, or a multiple of it");

inline constexpr i32 kTeams = kComputeWarps == kManyWarps && kTokenGroups % 2 == 0 && kTilePairs > 0 &&
                                      kTilePairs % (kTokenGroups * kPairsAtOnce) == 0
                                  ? 2
                                  : 1;
static_assert(kTeams <= kMostTeams);
inline constexpr i32 kTeamWarps = kComputeWarps / kTeams;
inline constexpr i32 kTeamThreads = 32 * kTeamWarps;
// Tokens in turns: so many are one team's, as many the next one's.
inline constexpr i32 kTurnTokens =
    kTeams == 1 ? kCut.padded_tile : 16 * kPairsAtOnce * (kTokenGroups / kTeams);
static_assert(kTeams == 1 || kGeometry.tile % (kTeams * kTurnTokens) == 0, "each team has a turn");

/// The side warp polls the shared partials of up to 64 tokens while others poll latents. Of more each warp polls those of the rows that it finishes, while
/// the exchange is under way.
inline constexpr bool kSidePollsShared = kGeometry.tile <= 64;
/// The side warp finishes the rows of few tokens: it has nothing else to do while the others multiply.
inline constexpr bool kSideFinishes = kGeometry.tile <= 4 && kGeometry.exchanges == 1;
/// The side warp is waited for by nobody until rows are finished.
inline constexpr bool kSideIsApart = kGeometry.tile < 16 || kTeams > 1;

/// One token is polled by eight lanes a line (kernels/spread.hpp).
inline constexpr bool kSpreads = kMaxBatch <= kSpreadTokens;

/// Tokens of tile `tile`.
MOETAIL_DEVICE i32 tokens_of(const Tail& tail, i32 tile) {
  if constexpr (kExactBatch && kMaxBatch <= kGeometry.tile) return kMaxBatch;
  const i32 left = tail.batch - tile * kGeometry.tile;
  return left < kGeometry.tile ? left : kGeometry.tile;
}

/// A compute warp's.
MOETAIL_DEVICE i32 team_of(const Tail& tail) {
  if constexpr (kTeams == 1) return 0;
  return tail.warp / kTeamWarps;
}
MOETAIL_DEVICE i32 team_thread(const Tail& tail) {
  if constexpr (kTeams == 1) return tail.thread;
  return tail.thread % kTeamThreads;
}

/// Tokens of tile `tile` that are this compute warp's team's.
MOETAIL_DEVICE i32 team_tokens(const Tail& tail, i32 tile) {
  const i32 tokens = tokens_of(tail, tile);
  if constexpr (kTeams == 1) return tokens;
  constexpr i32 kRound = kTeams * kTurnTokens;
  const i32 last = tokens % kRound - team_of(tail) * kTurnTokens;
  return tokens / kRound * kTurnTokens + (last < 0 ? 0 : last < kTurnTokens ? last : kTurnTokens);
}

/// Token of the tile that is the team's token `index`.
MOETAIL_DEVICE i32 team_token(const Tail& tail, i32 index) {
  if constexpr (kTeams == 1) return index;
  return (index / kTurnTokens * kTeams + team_of(tail)) * kTurnTokens + index % kTurnTokens;
}

/// All warps, `index` counting the meetings: a team's operand is there when its compute warps have met, and the side warp, which none of them waits
/// for, comes when it has time. `meanwhile`: what a compute warp does before it waits for the others.
template <class Work>
MOETAIL_DEVICE void meet(const Tail& tail, i32 index, const Work& meanwhile) {
  if constexpr (!kSideIsApart) {
    meanwhile();
    __syncthreads();
    return;
  }
  const u32 parity = static_cast<u32>(index & 1);
  if (tail.warp < kComputeWarps) {
    __syncwarp();
    if (tail.lane == 0) device::arrive_barrier(tail.team_barrier(team_of(tail)));
    meanwhile();
    device::wait_barrier(tail.team_barrier(team_of(tail)), parity);
  } else {
#pragma unroll
    for (i32 team = 0; team < kTeams; ++team) device::wait_barrier(tail.team_barrier(team), parity);
  }
}

}  // namespace moetail::kernels
