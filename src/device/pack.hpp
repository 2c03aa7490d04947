// SPDX-License-Identifier: Apache-2.0
// bf16 pairs in 32-bit words and lines, as the numeric contract rounds them.
#pragma once

#include "device/annotate.hpp"

namespace moetail::device {

MOETAIL_DEVICE float low_float(u32 pair) {
  return __uint_as_float(pair << 16);
}
MOETAIL_DEVICE float high_float(u32 pair) {
  return __uint_as_float(pair & 0xFFFF0000u);
}

// cvt.rn.bf16x2.f32, sm_80. To nearest even, every NaN becomes 0x7FFF: the contract's rounding, and never the sentinel word.
MOETAIL_DEVICE u32 pack_bf16(float low, float high) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// Eight fp32 columns of a line.
struct Columns {
  float value[8];
};

MOETAIL_DEVICE Columns columns_of(const Line& line) {
  Columns c;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    c.value[2 * i] = low_float(line.word[i]);
    c.value[2 * i + 1] = high_float(line.word[i]);
  }
  return c;
}

MOETAIL_DEVICE Line pack_line(const Columns& c) {
  Line line;
#pragma unroll
  for (int i = 0; i < 4; ++i) line.word[i] = pack_bf16(c.value[2 * i], c.value[2 * i + 1]);
  return line;
}

MOETAIL_DEVICE void add_line(Columns& sum, const Line& line) {
  const Columns addend = columns_of(line);
#pragma unroll
  for (int i = 0; i < 8; ++i) sum.value[i] = __fadd_rn(sum.value[i], addend.value[i]);
}

}  // namespace moetail::device
