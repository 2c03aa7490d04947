// SPDX-License-Identifier: Apache-2.0
// src/device/cluster.hpp, emulated.
#pragma once

#include "device/annotate.hpp"
#include "protocol/safeguards.hpp"

namespace moetail::device {

MOETAIL_DEVICE u32 block_in_cluster() {
  return emulator::here->block_in_cluster;
}
MOETAIL_DEVICE void arrive_cluster_release() {
  emulator::arrive_cluster();
}
MOETAIL_DEVICE void arrive_cluster_relaxed() {
  emulator::arrive_cluster();
}
MOETAIL_DEVICE void wait_cluster_acquire() {
  emulator::wait_cluster();
}
MOETAIL_DEVICE u32 address_in_block(u32 address, u32 block) {
  return emulator::address_in_block(address, block);
}
MOETAIL_DEVICE void store_async(u32 to, u32 barrier, float a) {
  emulator::store_later(to, {{__float_as_uint(a)}}, 4, barrier);
}
MOETAIL_DEVICE void store_async(u32 to, u32 barrier, float a, float b) {
  emulator::store_later(to, {{__float_as_uint(a), __float_as_uint(b)}}, 8, barrier);
}
MOETAIL_DEVICE void store_async(u32 to, u32 barrier, float a, float b, float c, float d) {
  emulator::store_later(
      to, {{__float_as_uint(a), __float_as_uint(b), __float_as_uint(c), __float_as_uint(d)}}, 16, barrier);
}
MOETAIL_DEVICE void wait_for_predecessor() {
  if constexpr (protocol::kWaitsForPredecessor) emulator::wait_for_predecessor();
}
MOETAIL_DEVICE void trigger_dependents() {
  emulator::trigger_dependents();
}

}  // namespace moetail::device
