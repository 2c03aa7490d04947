// SPDX-License-Identifier: Apache-2.0
// An H200 as cuDeviceGetAttribute describes it, but without multicast: what the drivers that tests load say of their device.
#pragma once

#include "engine/cuda/driver_abi.hpp"

namespace moetail::testing {

inline int h200_attribute(cuda::abi::DeviceAttribute which) {
  using cuda::abi::DeviceAttribute;
  switch (which) {
    case DeviceAttribute::compute_capability_major: return 9;
    case DeviceAttribute::compute_capability_minor: return 0;
    case DeviceAttribute::cluster_launch:
    case DeviceAttribute::can_map_host_memory:
    case DeviceAttribute::cooperative_launch: return 1;
    case DeviceAttribute::compute_mode:
    case DeviceAttribute::multicast_supported: return 0;
    case DeviceAttribute::multiprocessor_count: return 132;
    case DeviceAttribute::warp_size: return 32;
    case DeviceAttribute::max_threads_per_block: return 1024;
    case DeviceAttribute::max_threads_per_multiprocessor: return 2048;
    case DeviceAttribute::max_registers_per_multiprocessor: return 65536;
    case DeviceAttribute::l2_cache_bytes: return 60 << 20;
    case DeviceAttribute::max_shared_bytes_per_block_optin: return 227 << 10;
    case DeviceAttribute::max_shared_bytes_per_multiprocessor: return 228 << 10;
    case DeviceAttribute::reserved_shared_bytes_per_block: return 1 << 10;
  }
  return 0;
}

}  // namespace moetail::testing
