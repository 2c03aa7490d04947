// SPDX-License-Identifier: Apache-2.0
// How a device function of moetail is declared. NVRTC and nvcc only: nothing of this room is seen by a host compiler.
#pragma once

#include "protocol/words.hpp"

// Phases are written as functions to be read and have to vanish: everything is inlined into the kernel that uses it.
#define MOETAIL_DEVICE __device__ __forceinline__
// The rare paths (a wait's look around, a fault) stay out of line, so that they cost the hot path no registers.
#define MOETAIL_COLD __device__ __noinline__

namespace moetail::device {

using protocol::i32;
using protocol::Line;
using protocol::u16;
using protocol::u32;
using protocol::u64;
using protocol::u8;

}  // namespace moetail::device
