// SPDX-License-Identifier: Apache-2.0
// The result of one row of the benchmark, and how it is reported: table, CSV, JSON. docs/benchmark.md explains every figure.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/interleave.hpp"
#include "bench/load_watch.hpp"
#include "cli/phases.hpp"
#include "cli/result.hpp"

namespace moetail::cli {

/// What the other program did in a row.
struct OtherResult {
  std::string name = "oneDNN";
  std::string description;  ///< empty: there was none, for the reason `absence`
  std::string absence;
  std::vector<double> layer_us;  ///< of all rounds
  std::vector<double> alone_us;  ///< step times without ours in between; empty unless asked for
  Checks checks;

  bool ran() const { return !description.empty(); }
  bool passed() const { return checks.within_bound && checks.repeat_equal && checks.rows_checked > 0; }
};

struct BenchRow {
  Engine engine = Engine::cpu;
  Result result;                 ///< ours; timing and checks of all rounds
  std::vector<double> layer_us;  ///< ours
  std::vector<double> alone_us;
  bench::Rounds rounds;
  std::optional<bench::Load> load;  ///< while the rounds ran
  Ceilings ceilings;                ///< what result.floor was computed from
  std::uint64_t rank_bytes = 0;     ///< CUDA: what one rank's layer reads and writes, mailboxes included
  OtherResult other;
  std::vector<PhaseTime> phases;  ///< CUDA, --phases: of traced kernels, after the rounds; else empty
  std::string phases_absence;     ///< --phases: why they are not there

  /// A time may be shown.
  bool shows_ours() const { return result.checks.passed(); }
  bool shows_ratio() const { return shows_ours() && other.ran() && other.passed(); }
  bool passed() const { return result.checks.passed() && (!other.ran() || other.passed()); }
  /// What the floor counts: of one rank on a GPU, of all ranks on a CPU.
  std::uint64_t bytes() const {
    return engine == Engine::cuda ? rank_bytes : result.configuration.plan.floor_bytes();
  }
  /// Those over the median time.
  double bytes_per_second() const;
};

const std::vector<Column>& bench_columns();
std::vector<std::string> bench_cells(const BenchRow& row);

/// What stands below the table for a row: failed checks and what `--alone` found. May be empty; else it ends in a newline.
std::string bench_notes(const BenchRow& row);

std::string csv_titles();
std::string csv_line(const BenchRow& row);

/// The fields of `moetail run`, and the benchmark's own.
nlohmann::json bench_json(const BenchRow& row);

}  // namespace moetail::cli
