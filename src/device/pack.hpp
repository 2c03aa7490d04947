// SPDX-License-Identifier: Apache-2.0
// bf16 pairs in 32-bit words and lines, as the numeric contract rounds them.
#pragma once

#include "device/convert.hpp"

namespace moetail::device {

MOETAIL_DEVICE float low_float(u32 pair) {
  return __uint_as_float(pair << 16);
}
MOETAIL_DEVICE float high_float(u32 pair) {
  return __uint_as_float(pair & 0xFFFF0000u);
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
