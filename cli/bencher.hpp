// SPDX-License-Identifier: Apache-2.0
// What times the rows of the benchmark: one for each engine. Refusals, tables and reports are bench_command's, whoever timed.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/bench_row.hpp"
#include "cli/options.hpp"
#include "cli/progress.hpp"
#include "cli/setup.hpp"

namespace moetail::cli {

class Bencher {
 public:
  virtual ~Bencher() = default;

  /// What the report's head says of the machine.
  virtual Ceilings ceilings() const = 0;
  /// The engine's own fields of the report.
  virtual void describe(nlohmann::json& report) const = 0;
  /// A row, checked and with its floor.
  virtual BenchRow run(const Configuration& one) = 0;
  /// The lines below the table: how it was measured, and the floor's formula with its numbers.
  virtual std::string method(const std::vector<BenchRow>& rows) const = 0;
};

/// All ranks in this process, against oneDNN. Options and setup must outlive it.
std::unique_ptr<Bencher> make_cpu_bencher(const BenchOptions& options, const RunSetup& setup,
                                          Progress& progress);

/// One rank with its peers replayed, against the unfused pipeline. Measures the GPU's ceilings. The same lifetimes.
std::unique_ptr<Bencher> make_gpu_bencher(const BenchOptions& options, const RunSetup& setup,
                                          Progress& progress);

}  // namespace moetail::cli
