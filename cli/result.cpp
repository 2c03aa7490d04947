// SPDX-License-Identifier: Apache-2.0
// Statistics and table cells of a result.
#include "cli/result.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace moetail::cli {
namespace {

// The smallest sample that at least `share` of all samples do not exceed. `sorted` is not empty.
double nearest_rank(const std::vector<double>& sorted, double share) {
  const double rank = std::ceil(share * static_cast<double>(sorted.size()));
  return sorted[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

const char* yes_or_no(bool value) {
  return value ? "yes" : "NO";
}

}  // namespace

std::string configuration_text(const Configuration& one) {
  const std::string put = one.put == Put::automatic ? "" : fmt::format(", {} put", put_name(one.put));
  return fmt::format("{}, T={}, B={}{}", protocol::mode_name(one.plan.mode), one.input.shape.ranks,
                     one.input.batch, put);
}

Timing timing_of(std::vector<double> layer_us) {
  if (layer_us.empty()) return {};
  std::sort(layer_us.begin(), layer_us.end());
  return {nearest_rank(layer_us, 0.5), nearest_rank(layer_us, 0.99), layer_us.size()};
}

const std::vector<Column>& result_columns() {
  static const std::vector<Column> columns = {{"mode", 10, Align::left},
                                              {"T", 2},
                                              {"B", 3},
                                              {"steps", 0},
                                              {"median us", 0},
                                              {"p99 us", 8},
                                              {"floor us", 0},
                                              {"% of floor", 0},
                                              {"row error", 0},
                                              {"bound", 9},
                                              {"ranks equal", 0},
                                              {"repeat equal", 0},
                                              {"rows checked", 13},
                                              {"verdict", 0, Align::left}};
  return columns;
}

std::vector<std::string> result_cells(const Result& result) {
  const Configuration& one = result.configuration;
  const Checks& checks = result.checks;
  const auto time = [&](std::string text) { return checks.passed() ? std::move(text) : std::string("-"); };
  return {protocol::mode_name(one.plan.mode),
          fmt::format("{}", one.input.shape.ranks),
          fmt::format("{}", one.input.batch),
          fmt::format("{}", result.steps),
          time(fmt::format("{:.1f}", result.timing.median_us)),
          time(fmt::format("{:.1f}", result.timing.p99_us)),
          result.floor.us() > 0 ? time(fmt::format("{:.1f}", result.floor.us())) : "-",
          result.floor.us() > 0 ? time(fmt::format("{:.1f}", result.percent_of_floor())) : "-",
          fmt::format("{:.2e}", checks.worst_error),
          fmt::format("{:.2e}", checks.worst_bound),
          yes_or_no(checks.ranks_equal),
          yes_or_no(checks.repeat_equal),
          fmt::format("{}/{}", checks.rows_checked, checks.rows_total),
          checks.passed() ? "pass" : "FAIL"};
}

std::string mismatch_text(const Result& result) {
  if (result.checks.passed()) return {};
  const std::string& where = result.checks.first_mismatch;
  return fmt::format("FAIL {}: {}", configuration_text(result.configuration),
                     where.empty() ? "no row was checked" : where);
}

}  // namespace moetail::cli
