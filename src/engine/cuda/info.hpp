// SPDX-License-Identifier: Apache-2.0
// What `moetail info` prints of the CUDA engine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/cuda/context.hpp"

namespace moetail::cuda {

/// How many clusters of one geometry the device holds at once.
struct ClusterFit {
  unsigned cluster = 1;
  unsigned threads = 256;
  std::size_t shared_bytes = 0;
  int resident = 0;
};

/// Asks the driver with an empty kernel, so registers do not limit the answer. 0 where the device has no such cluster.
int resident_clusters(const ContextRef& context, unsigned cluster, unsigned threads,
                      std::size_t shared_bytes);

struct CudaInfo {
  Support support;
  std::string driver;                 ///< "13.0, libcuda.so.1", or why there is none
  std::string nvrtc;                  ///< "13.0, libnvrtc.so.13", or why there is none
  std::string kernel_cache;           ///< its folder, or that it is off
  std::optional<DeviceFacts> device;  ///< also of a device that is not supported
  std::vector<ClusterFit>
      clusters;  ///< where supported: sizes 1, 4, 8 and 16 at 60 KB and at the most shared memory a block
};

/// Never throws: what cannot be found out is said in words. Creates the primary context where the device is supported, which
/// takes some tenths of a second.
CudaInfo cuda_info(int ordinal = 0) noexcept;

}  // namespace moetail::cuda
