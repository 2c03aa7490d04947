// SPDX-License-Identifier: Apache-2.0
// The avx2 target's dot for batches that are bound by arithmetic as much as by the stream of weights.
#pragma once

#include "engine/cpu/arith.hpp"

namespace moetail::cpu {

/// Fewer tokens than kFewestTileTokens are a stream of weights, which Highway's dot keeps up with; a tile has kTileRows rows.
inline constexpr int kFewestTileTokens = 3;
inline constexpr int kTileRows = 3;

/// Arith::dot for any number of tokens and at least kTileRows rows, with the bits of the avx2 target. Takes tokens four at a
/// time: 1 costs what 4 do. Needs AVX2 and FMA. Keeps scratch of each calling thread, at most 64 bytes a column of `latent` and
/// 30 KB, and throws std::bad_alloc where there is none.
void avx2_tile_dot(const Bf16* weights, const Bf16* operand, int latent, int num_rows, int num_tokens,
                   float* dot, int dot_pitch);

}  // namespace moetail::cpu
