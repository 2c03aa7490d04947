// SPDX-License-Identifier: Apache-2.0
// Where a value is worked out: here, and not where it is used. Threads that are about to wait have the time that those behind the wait have not.
#pragma once

#include "device/annotate.hpp"

namespace moetail::device {

MOETAIL_DEVICE void pin(u32& value) {
  asm volatile("" : "+r"(value));
}
MOETAIL_DEVICE void pin(u64& value) {
  asm volatile("" : "+l"(value));
}

}  // namespace moetail::device
