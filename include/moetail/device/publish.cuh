// SPDX-License-Identifier: Apache-2.0
// For the kernel that ends your experts, in publish and twoshot mode: publish the finalized partial instead of storing it.
//
//   __global__ void epilogue(const __grid_constant__ moetail::PublishTargets targets, ...) {
//     moetail::device::wait_for_predecessor();                  // where the launch is a dependent one; harmless elsewhere
//     const moetail::device::Publisher partial(targets);
//     ... partial.put_line(token, line, columns);               // 8 columns a store: put_line, put_pair, put_row
//   }
//
// `targets` is what PreparedTail::publish(B) returned for this call; the kernel runs on the rank's main stream before the tail. Compiles with
// nvcc and NVRTC (C++20) for sm_90a, sm_100a, sm_103a and sm_120a; needs no other header. docs/integration.md, "In a kernel of your own".
#pragma once

#include "device/cluster.hpp"
#include "device/publisher.hpp"
