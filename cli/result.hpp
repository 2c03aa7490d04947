// SPDX-License-Identifier: Apache-2.0
// The result of one configuration, and its row of the table.
#pragma once

#include <string>
#include <vector>

#include "cli/floor.hpp"
#include "cli/judge.hpp"
#include "cli/setup.hpp"
#include "cli/table.hpp"

namespace moetail::cli {

struct Timing {
  double median_us = 0;  ///< of a layer
  double p99_us = 0;
  std::size_t samples = 0;
};

/// Median and 99th percentile, both by nearest rank. No samples: zeros.
Timing timing_of(std::vector<double> layer_us);

struct Result {
  Configuration configuration;
  int num_layers = 0;
  int steps = 0;
  Timing timing;
  Floor floor;
  Checks checks;

  double percent_of_floor() const { return timing.median_us > 0 ? 100 * floor.us() / timing.median_us : 0; }
};

/// "front, T=8, B=4": which row, in messages.
std::string configuration_text(const Configuration& one);

/// The columns that `result_cells` fills.
const std::vector<Column>& result_columns();

/// One row. Where a check failed there are dashes in place of the times: a wrong answer has no speed.
std::vector<std::string> result_cells(const Result& result);

/// What stands below the table for a result whose checks failed: the configuration and its first mismatch. Else empty.
std::string mismatch_text(const Result& result);

}  // namespace moetail::cli
