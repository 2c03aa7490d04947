// SPDX-License-Identifier: Apache-2.0
// src/device/matrix.hpp, emulated: mma.m16n8k16 by its fragments' places, the sum of a step's 16 products rounded once.
#pragma once

#include "device/annotate.hpp"

namespace moetail::device {

struct Tile {
  float value[4];
};

template <int kHalf>
MOETAIL_DEVICE void multiply_add(Tile& tile, const Line& upper, const Line& lower, const Line& b) {
  const emulator::Deposit* all =
      emulator::exchange({{upper.word[2 * kHalf], upper.word[2 * kHalf + 1], lower.word[2 * kHalf],
                           lower.word[2 * kHalf + 1], b.word[2 * kHalf], b.word[2 * kHalf + 1]}},
                         "mma.m16n8k16");
  const u32 lane = emulator::here->lane;
  for (u32 i = 0; i < 4; ++i) {
    const u32 half = i / 2, row = lane / 4, column = lane % 4 * 2 + i % 2;
    double sum = tile.value[i];
    for (u32 quad = 0; quad < 4; ++quad) {
      const u32* a = all[row * 4 + quad].word + 2 * half;
      const u32* of_b = all[column * 4 + quad].word + 4;
      for (u32 j = 0; j < 2; ++j)
        sum +=
            static_cast<double>(__uint_as_float(a[j] << 16)) * __uint_as_float(of_b[j] << 16) +
            static_cast<double>(__uint_as_float(a[j] & 0xFFFF0000u)) * __uint_as_float(of_b[j] & 0xFFFF0000u);
    }
    tile.value[i] = emulator::canonical(static_cast<float>(sum));
  }
}

}  // namespace moetail::device
