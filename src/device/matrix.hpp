// SPDX-License-Identifier: Apache-2.0
// The matrix unit's portable path: 8x8 fragments out of shared memory and m16n8k16 products. Weights are A, tokens are N.
#pragma once

#include "device/annotate.hpp"

namespace moetail::device {

/// Four 8x8 bf16 matrices: for A of m16n8k16 its four quarters, for B two k16 steps.
struct Fragment {
  u32 reg[4];
};

/// What a warp holds of a 16 x 8 fp32 tile: rows lane/4 and lane/4 + 8, columns 2 (lane%4) and the next.
struct Tile {
  float value[4];
};

// ldmatrix.sync.aligned.m8n8.x4.shared.b16, sm_75. Lane i gives the address of a row of matrix i/8.
MOETAIL_DEVICE Fragment load_fragment(u32 address) {
  Fragment f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(f.reg[0]), "=r"(f.reg[1]), "=r"(f.reg[2]), "=r"(f.reg[3])
               : "r"(address)
               : "memory");
  return f;
}

// mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32, sm_80.
MOETAIL_DEVICE void multiply_add(Tile& tile, const Fragment& a, u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(tile.value[0]), "+f"(tile.value[1]), "+f"(tile.value[2]), "+f"(tile.value[3])
      : "r"(a.reg[0]), "r"(a.reg[1]), "r"(a.reg[2]), "r"(a.reg[3]), "r"(b0), "r"(b1));
}

}  // namespace moetail::device
