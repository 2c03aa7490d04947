// SPDX-License-Identifier: Apache-2.0
// What one rank's layer cannot do without: the bytes that it moves, and the steps that follow each other.
#pragma once

#include <cstdint>
#include <string>

#include "bench/cuda/gpu_ceilings.hpp"
#include "cli/floor.hpp"
#include "cli/setup.hpp"

namespace moetail::cli {

struct ReplayCost {
  // Bytes, each counted where this rank reads or writes it.
  std::uint64_t weight_bytes = 0;   ///< its rows of the up projection, norm
  std::uint64_t input_bytes = 0;    ///< expert rows, routing weights and map, shared partial, residual
  std::uint64_t mailbox_bytes = 0;  ///< published, polled and re-armed
  std::uint64_t output_bytes = 0;   ///< its columns, and with a take the whole row read, written and re-armed
  // Of the dependent chain.
  int launches = 0;
  int polls = 0;  ///< that wait for each other
  int exchanges = 1;

  std::uint64_t bytes() const { return weight_bytes + input_bytes + mailbox_bytes + output_bytes; }
};

ReplayCost replay_cost(const Configuration& one, bool takes);

/// max(bytes / bandwidth, launches x launch + polls x publish to poll + exchanges x exchange).
Floor replay_floor(const ReplayCost& cost, const bench::GpuCeilings& ceilings);

/// The formula with its measured numbers, for people.
std::string replay_floor_text(const bench::GpuCeilings& ceilings);

}  // namespace moetail::cli
