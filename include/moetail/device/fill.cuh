// SPDX-License-Identifier: Apache-2.0
// For the kernels whose results front_poll mode polls: routed rows, their weights, the shared experts' partial.
//
//   __global__ void experts(const __grid_constant__ moetail::PollSlots slots, ...) {
//     moetail::device::wait_for_predecessor();
//     const moetail::device::SlotFiller routes(slots);
//     ... routes.put_weight(token, k, weight);  routes.put_line(token, k, line, columns);  routes.drop(token, k);
//   }
//
// `slots` is what PreparedTail::poll_slots(B) returned for this call; the kernels run after the previous call's consumer, on the main stream,
// or on a side stream that was forked from it there. See publish.cuh for compilers.
#pragma once

#include "device/cluster.hpp"
#include "device/filler.hpp"
