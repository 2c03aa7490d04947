// SPDX-License-Identifier: Apache-2.0
// What a traced run leaves: one way to get it for each engine, one report.
#pragma once

#include <cstddef>
#include <vector>

#include "base/trace.hpp"
#include "cli/judge.hpp"
#include "cli/options.hpp"
#include "cli/progress.hpp"
#include "cli/setup.hpp"

namespace moetail::cli {

struct TracedSteps {
  Checks checks;
  std::vector<Trace::Span> spans;
  std::size_t dropped = 0;  ///< marks that found no room
  int layers = 0;           ///< of a step
};

/// All ranks of the one configuration of `setup`, `options.steps` steps after some that do not count. Throws Code::fault.
TracedSteps trace_on_cpu(const RunOptions& options, const RunSetup& setup, Progress& progress);

/// Rank 0 with its peers replayed, all layers in one graph; a step is a replay of it. The same exceptions.
TracedSteps trace_on_gpu(const RunOptions& options, const RunSetup& setup, Progress& progress);

}  // namespace moetail::cli
