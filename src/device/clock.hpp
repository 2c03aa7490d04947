// SPDX-License-Identifier: Apache-2.0
// Which SM a thread runs on, and what time it is there. One PTX instruction a wrapper.
#pragma once

#include "device/annotate.hpp"

namespace moetail::device {

// mov.u64 from %clock64, sm_30. Cycles of this SM; SMs have begun to count at different times.
MOETAIL_DEVICE u64 clock_cycles() {
  u64 now;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(now)::"memory");
  return now;
}

// mov.u32 from %smid, sm_30.
MOETAIL_DEVICE u32 sm_number() {
  u32 sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  return sm;
}

}  // namespace moetail::device
