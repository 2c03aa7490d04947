// SPDX-License-Identifier: Apache-2.0
// The benchmark's report as one HTML page that needs nothing beside it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace moetail::cli {

/// A page of the JSON report of `moetail bench`: latency over B with floor and baseline, percent of the floor, ratio to the
/// baseline with its noise, every row as a table, machine and method. A row that failed its check appears in the table, without a
/// time.
std::string html_report(const nlohmann::json& report);

}  // namespace moetail::cli
