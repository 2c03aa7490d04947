// SPDX-License-Identifier: Apache-2.0
// What measures the ways of a call for the tuner: one for each engine. Refusals, the choice of the table and its file are tune_command's.
#pragma once

#include <memory>
#include <optional>

#include "cli/knob_search.hpp"
#include "cli/options.hpp"
#include "cli/progress.hpp"
#include "cli/setup.hpp"
#include "cli/tune.hpp"

namespace moetail::cli {

/// What one (T, B) came to.
struct Tuned {
  ModeTimes times;
  std::size_t way = 0;  ///< of kWays, whose kernel `kernel` is
  FoundKernel kernel;   ///< CPU: the plan's own
};

class Tuner {
 public:
  virtual ~Tuner() = default;

  /// Measures the ways of one configuration, its answers checked. Empty where a way's answer was wrong, which is printed: there is no table of
  /// wrong answers.
  virtual std::optional<Tuned> tune(const Configuration& one) = 0;
  /// Whether every answer of every variant was right.
  virtual bool passed() const = 0;
};

/// All ranks in this process, step by step. Options and setup must outlive it.
std::unique_ptr<Tuner> make_cpu_tuner(const TuneOptions& options, const RunSetup& setup, Progress& progress);

/// One rank with its peers replayed, all layers in one graph; then the kernel of the fastest way. The same lifetimes.
std::unique_ptr<Tuner> make_gpu_tuner(const TuneOptions& options, const RunSetup& setup, Progress& progress);

}  // namespace moetail::cli
