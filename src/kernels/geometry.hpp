// SPDX-License-Identifier: Apache-2.0
// How a tail is cut up: K slices over the blocks of a cluster, row blocks over clusters, tokens into tiles. Pure arithmetic that
// the plan and the kernels share, so that a shared-memory offset exists once.
#pragma once

#include "protocol/shape.hpp"

namespace moetail::kernels {

using protocol::i32;
using protocol::Shape;
using protocol::u32;

// Compute warps poll and multiply; one more, the side warp, takes what is off the critical path: control words, shared partials, squares, the
// end of the call. A tenth that did nothing but keep a few weight copies in flight was 0.2 us slower at B = 1, 0.6 us at B = 8 (H200,
// 2026-11-29).
inline constexpr i32 kFewWarps = 8, kManyWarps = 16;
constexpr i32 threads_of(i32 compute_warps) {
  return 32 * (compute_warps + 1);
}

/// Teams of warps that poll and multiply tokens of their own (kernels/team.hpp).
inline constexpr i32 kMostTeams = 2;

/// Tokens of a kernel that polls with eight lanes a line (kernels/spread.hpp).
inline constexpr i32 kSpreadTokens = 1;

/// Words that the threads of a block share besides data: the control words as use_control hands them on, the control barrier, the
/// failed flag, and a word a warp that nobody reads (touch_arguments).
namespace block_words {
inline constexpr u32 kControl = 0, kBarrier = 32, kFailed = 40, kTouched = 48;
inline constexpr i32 kBytes = static_cast<i32>(kTouched) + threads_of(kManyWarps) / 32 * 4;
}  // namespace block_words

/// What a kernel is compiled for besides its shape.
struct Geometry {
  i32 slices =
      16;  ///< blocks of a cluster, each with one K slice. Part of the numeric contract: a function of arch alone
  i32 clusters = 7;       ///< clusters of one rank
  i32 row_block = 128;    ///< rows of the shard that a cluster multiplies at a time
  i32 tile = 1;           ///< tokens that it multiplies them with at a time: 1, 2, 4, 8 or a multiple of 16
  i32 stages = 1;         ///< row blocks of weights that shared memory holds
  i32 warps = kFewWarps;  ///< compute warps of a block: 8, or 16
  i32 exchanges = 1;      ///< in shared memory at a time: 1, or one for each row block of a cluster
};

constexpr i32 round_up(i32 value, i32 step) {
  return (value + step - 1) / step * step;
}

/// Sizes that follow from shape and geometry.
struct Cut {
  i32 slice_lines;     ///< lines of 8 columns in a K slice; the last slices may have fewer, or none
  i32 padded_columns;  ///< of a slice in shared memory: whole pairs of k16 steps, padded with zeros
  i32 pitch;  ///< bytes from row to row of weights and operand: an odd number of 64-byte units, so that two rows' halves of 128 bytes meet no bank twice
  i32 octets;  ///< groups of 8 lines in a slice, the last of which may be short: the squares are added up by them
  i32 row_blocks;     ///< of the shard
  i32 owner_rows;     ///< rows of a row block that one block of the cluster finishes: 2 to 8
  i32 padded_tile;    ///< tokens of the operand: whole n8 tiles
  i32 sent_tokens;    ///< tokens of a row that travel to its owner
  i32 sent_pitch;     ///< floats from row to row at the owner
  i32 squares_pitch;  ///< floats from slice to slice of its squares
};

constexpr Cut make_cut(const Shape& shape, const Geometry& g) {
  Cut cut{};
  cut.slice_lines = (shape.latent / 8 + g.slices - 1) / g.slices;
  cut.padded_columns = round_up(cut.slice_lines * 8, 32);
  cut.pitch = (cut.padded_columns / 32 | 1) * 64;
  cut.octets = (cut.slice_lines + 7) / 8;
  cut.row_blocks = (shape.shard() + g.row_block - 1) / g.row_block;
  cut.owner_rows = g.row_block / g.slices;
  cut.padded_tile = round_up(g.tile, 8);
  cut.sent_tokens = g.tile == 1 ? 1 : round_up(g.tile, 2);
  // Four floats more, so that the eight rows of a token that a warp finishes meet eight groups of four banks.
  cut.sent_pitch = g.tile < 16 ? cut.sent_tokens : cut.sent_tokens + 4;
  cut.squares_pitch = g.tile < 16 ? g.tile : g.tile + 4;
  return cut;
}

/// Byte offsets in a block's dynamic shared memory.
struct SharedLayout {
  u32 weights;       ///< [stages][row_block] rows of `pitch` bytes
  u32 operand;       ///< [padded_tile] rows of `pitch` bytes: bf16(gamma * x)
  u32 gamma;         ///< [slice_lines] lines
  u32 partials;      ///< [exchanges][slices][owner_rows][sent_pitch] fp32, from every block of the cluster
  u32 squares;       ///< [exchanges][slices][squares_pitch] fp32, likewise
  u32 item_squares;  ///< [tile][item_pitch] fp32: of each line of x
  u32 shared_sums;   ///< [exchanges][tile][owner_rows] fp32: sums over ranks of the shared partials
  u32 handed;  ///< [warps, the side warp's too][ranks][4] lines, up to kSpreadTokens: what lanes hand each other
  u32 barriers;  ///< one an m16 group of rows of each stage, then the exchanges', gamma's, the teams' and the shared sums'
  u32 words;  ///< block_words
  u32 bytes;
  i32 item_pitch;  ///< odd: one lane a token meets no bank twice
};

// Of one exchange.
constexpr i32 partials_bytes(const Cut& cut, const Geometry& g) {
  return g.slices * cut.owner_rows * cut.sent_pitch * 4;
}
constexpr i32 squares_bytes(const Cut& cut, const Geometry& g) {
  return g.slices * cut.squares_pitch * 4;
}
constexpr i32 sums_bytes(const Cut& cut, const Geometry& g) {
  return g.tile * cut.owner_rows * 4;
}

constexpr SharedLayout make_shared_layout(const Shape& shape, const Cut& cut, const Geometry& g) {
  SharedLayout s{};
  u32 end = 0;
  const auto take = [&end](i32 bytes) {
    const u32 begin = end;
    end += static_cast<u32>(round_up(bytes, 128));
    return begin;
  };
  s.item_pitch = cut.slice_lines | 1;
  s.weights = take(g.stages * g.row_block * cut.pitch);
  s.operand = take(cut.padded_tile * cut.pitch);
  s.gamma = take(cut.slice_lines * 16);
  s.partials = take(g.exchanges * partials_bytes(cut, g));
  s.squares = take(g.exchanges * squares_bytes(cut, g));
  s.item_squares = take(g.tile * s.item_pitch * 4);
  s.shared_sums = take(g.exchanges * sums_bytes(cut, g));
  s.handed = take(g.tile <= kSpreadTokens ? (g.warps + 1) * shape.ranks * 4 * 16 : 0);
  s.barriers = take((g.stages * (g.row_block / 16) + g.exchanges + 2 + kMostTeams) * 8);
  s.words = take(block_words::kBytes);
  s.bytes = end;
  return s;
}

/// Bytes that one exchange brings to each block: its rows' partial products and the squares, from every slice.
constexpr u32 exchange_bytes(const Cut& cut, const Geometry& g) {
  return static_cast<u32>(g.slices * (cut.owner_rows * cut.sent_tokens + g.tile) * 4);
}

}  // namespace moetail::kernels
