// SPDX-License-Identifier: Apache-2.0
// src/device/convert.hpp, emulated.
#pragma once

#include "device/annotate.hpp"
#include "protocol/numerics.hpp"

namespace moetail::device {

MOETAIL_DEVICE u32 pack_bf16(float low, float high) {
  return protocol::bf16_from_f32(low) | static_cast<u32>(protocol::bf16_from_f32(high)) << 16;
}

}  // namespace moetail::device
