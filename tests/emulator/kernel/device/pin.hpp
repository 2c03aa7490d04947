// SPDX-License-Identifier: Apache-2.0
// src/device/pin.hpp, emulated: nothing to do.
#pragma once

#include "device/annotate.hpp"

namespace moetail::device {

template <class Value>
MOETAIL_DEVICE void pin(Value&) {}

}  // namespace moetail::device
