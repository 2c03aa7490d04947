// SPDX-License-Identifier: Apache-2.0
// For the kernel that uses a tail's output rows: read them where they lie instead of taking a copy.
//
//   __global__ void next_layer(const __grid_constant__ moetail::OutConsumer consumer, ...) {
//     moetail::device::wait_for_predecessor();
//     moetail::device::OutReader out(consumer);
//     ... const moetail::device::Line columns = out.take_line(token, line);      // waits, reads, re-arms
//   }
//
// `consumer` is what TailBox::consumer(view) returned; the kernel is the next on the rank's main stream, takes every line of every row of the
// batch once, and is complete before the next call of the box begins. See publish.cuh for compilers.
#pragma once

#include "device/cluster.hpp"
#include "device/consumer.hpp"
#include "device/pack.hpp"
