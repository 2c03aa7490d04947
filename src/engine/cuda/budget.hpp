// SPDX-License-Identifier: Apache-2.0
// What a kernel may use, and messages that say what to change when it uses more.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "engine/cuda/context.hpp"
#include "engine/cuda/kernel.hpp"
#include "engine/cuda/nvrtc.hpp"

namespace moetail::cuda {

/// Spills of one thread that a kernel may have, bytes of stores and loads together. They stay in L1. The default table's kernels have none
/// (tests/kernels_compile_test.cpp); one of a user's shape may, and must not be refused for a few: T = 1 at 128 permuted rows has 96.
inline constexpr std::size_t kMostSpillBytes = 256;

/// Limits beyond the device's own. Empty: only the device's.
struct Budget {
  std::optional<int> max_registers = std::nullopt;             ///< a thread; see registers_beside_successor
  std::optional<std::size_t> max_shared_bytes = std::nullopt;  ///< a block, static and dynamic together
  std::size_t max_spill_bytes = 0;
  int min_resident_clusters =
      0;  ///< that have to be on the device at once, because they wait for each other; 0: none
};

/// The sizes a device has, for budgets of a device that is not here.
struct DeviceLimits {
  std::string arch;
  int registers_per_sm = 0;
  int max_threads_per_block = 0;
  std::size_t shared_bytes_per_block = 0;
};
DeviceLimits limits_of(const DeviceFacts& facts);
/// Of an architecture by its name: sm_90a, sm_100a, sm_103a, sm_120a. Throws Code::invalid_argument for others.
DeviceLimits limits_of(const std::string& arch);

/// Registers a thread with which two blocks of `threads` threads are resident on one SM, so that a successor launched early has a
/// place: an SM's registers lie in four parts, a warp's in one of them, in units of 8 a thread. 120 at 256 threads, 96 at 288.
int registers_beside_successor(const DeviceLimits& limits, int threads);

/// Every way in which a compiled kernel, launched so, exceeds budget or device: a sentence each, with the number, the limit and
/// what to change. Needs no GPU. Empty: all is well.
std::vector<std::string> budget_violations(const KernelUsage& usage, const Launch& launch,
                                           const Budget& budget, const DeviceLimits& limits);

/// The sentences as one message.
std::string joined_violations(const std::vector<std::string>& violations);

/// The sentence for too few resident clusters, or nothing. `resident` comes from Kernel::max_resident_clusters.
std::optional<std::string> residency_violation(const std::string& kernel, const Launch& launch, int resident,
                                               int needed);

}  // namespace moetail::cuda
