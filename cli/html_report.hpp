// SPDX-License-Identifier: Apache-2.0
// The benchmark's report as one HTML page that needs nothing beside it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/bench_row.hpp"

namespace moetail::cli {

/// A page of `moetail bench`: of the JSON report latency over B with floor and baseline, percent of the floor, ratio to the baseline
/// with its noise, machine and method; of its `rows` the table that the terminal has, and, where they were traced, the breakdown by phase. A row that failed its check appears in the table,
/// without a time.
std::string html_report(const nlohmann::json& report, const std::vector<BenchRow>& rows);

}  // namespace moetail::cli
