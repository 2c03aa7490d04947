// SPDX-License-Identifier: Apache-2.0
// src/device/barrier.hpp, emulated.
#pragma once

#include "device/annotate.hpp"

namespace moetail::device {

MOETAIL_DEVICE void init_barrier(u32 barrier, u32 arrivals = 1) {
  emulator::init_barrier(barrier, arrivals);
}
MOETAIL_DEVICE void fence_barrier_init() {}
MOETAIL_DEVICE void expect_bytes(u32 barrier, u32 bytes) {
  emulator::expect_bytes(barrier, bytes);
}
MOETAIL_DEVICE void arrive_barrier(u32 barrier) {
  emulator::arrive_barrier(barrier);
}
MOETAIL_DEVICE bool try_wait_barrier(u32 barrier, u32 parity) {
  if (emulator::has_ended(barrier, parity)) return true;
  emulator::pause();
  return false;
}
MOETAIL_DEVICE void wait_barrier(u32 barrier, u32 parity) {
  while (!try_wait_barrier(barrier, parity)) {
  }
}
MOETAIL_DEVICE u64 evict_first_policy() {
  return 0;
}
MOETAIL_DEVICE void copy_bulk_async(u32 to, const void* from, u32 bytes, u32 barrier) {
  if (to % 16 != 0 || reinterpret_cast<u64>(from) % 16 != 0 || bytes % 16 != 0)
    emulator::fail("cp.async.bulk: both ends and the size have to be multiples of 16 bytes");
  emulator::copy_later(to, from, bytes, barrier);
}
MOETAIL_DEVICE void copy_bulk_async(u32 to, const void* from, u32 bytes, u32 barrier, u64) {
  copy_bulk_async(to, from, bytes, barrier);
}

}  // namespace moetail::device
