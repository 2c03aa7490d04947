// SPDX-License-Identifier: Apache-2.0
// src/device/clock.hpp, emulated: one SM, whose cycles are nanoseconds.
#pragma once

#include "device/global.hpp"

namespace moetail::device {

MOETAIL_DEVICE u64 clock_cycles() {
  return global_time_ns();
}
MOETAIL_DEVICE u32 sm_number() {
  return 0;
}

}  // namespace moetail::device
