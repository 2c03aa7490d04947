// SPDX-License-Identifier: Apache-2.0
// What this GPU does at best, measured in the same run as what is compared with it.
#pragma once

#include <cstdint>
#include <string>

#include "bench/cuda/gpu.hpp"

namespace moetail::bench {

/// The best of a few measurements each.
struct GpuCeilings {
  double copy_bytes_per_second = 0;  ///< read and written bytes together
  double read_bytes_per_second = 0;
  double launch_us =
      0;  ///< an empty kernel of kProbeBlocks blocks in a chain, each complete before the next starts
  double dependent_launch_us = 0;  ///< the same, launched dependent
  double publish_us = 0;           ///< from one SM's store until another SM's poll has it, through L2
  double exchange_us = 0;          ///< each block of a cluster sends each 8 bytes and has what all sent to it
  int cluster = 0;                 ///< blocks of that cluster
  std::uint64_t bytes = 0;         ///< that copy and read went over, once

  double bytes_per_second() const {
    return copy_bytes_per_second > read_bytes_per_second ? copy_bytes_per_second : read_bytes_per_second;
  }
  /// One sentence with all of them, for people.
  std::string text() const;
};

inline constexpr unsigned kProbeBlocks = 112;  ///< as a front of K3 at T = 8 has

/// `bytes`: what copy and read go over, rounded down to what the launch divides, at least once around: as many as the weights that are
/// cold in what is compared. `chain`: launches in a chain. Throws Code::fault where two blocks lost each other.
GpuCeilings measure_gpu_ceilings(const Gpu& gpu, std::uint64_t bytes, int chain);

}  // namespace moetail::bench
