// SPDX-License-Identifier: Apache-2.0
// The matrix unit's portable path: m16n8k16 products of fragments out of shared memory. Weights are A, tokens are N.
#pragma once

#include "device/annotate.hpp"

namespace moetail::device {

/// What a warp holds of a 16 x 8 fp32 tile: rows lane/4 and lane/4 + 8, columns 2 (lane%4) and the next.
struct Tile {
  float value[4];
};

// mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32, sm_80. `kHalf` of 32 columns: rows lane / 4 (`upper`) and lane / 4 + 8 (`lower`) of
// A, token lane / 4 of B.
//
// A lane holds a line of the 32 columns: 8 (lane % 4) to 8 (lane % 4) + 7. Two products take it as their k16 steps, words 0 and 1, then 2
// and 3. That is another order of k than the instruction's own, the same for both operands, so that one load of a line serves two products.
template <int kHalf>
MOETAIL_DEVICE void multiply_add(Tile& tile, const Line& upper, const Line& lower, const Line& b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(tile.value[0]), "+f"(tile.value[1]), "+f"(tile.value[2]), "+f"(tile.value[3])
      : "r"(upper.word[2 * kHalf]), "r"(lower.word[2 * kHalf]), "r"(upper.word[2 * kHalf + 1]),
        "r"(lower.word[2 * kHalf + 1]), "r"(b.word[2 * kHalf]), "r"(b.word[2 * kHalf + 1]));
}

}  // namespace moetail::device
