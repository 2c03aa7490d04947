// SPDX-License-Identifier: Apache-2.0
// The matrix unit's type, made of fp32. One PTX instruction a wrapper.
#pragma once

#include "device/annotate.hpp"

namespace moetail::device {

// cvt.rn.bf16x2.f32, sm_80. To nearest even, every NaN becomes 0x7FFF: the contract's rounding, and never the sentinel word.
MOETAIL_DEVICE u32 pack_bf16(float low, float high) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

}  // namespace moetail::device
