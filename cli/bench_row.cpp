// SPDX-License-Identifier: Apache-2.0
// Cells and fields of a row of the benchmark.
#include "cli/bench_row.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bench/statistics.hpp"
#include "cli/format.hpp"
#include "cli/json_report.hpp"

namespace moetail::cli {
namespace {

using bench::median;
using bench::quantile;
using nlohmann::json;

// Two programs that synchronize their threads suffer more than this share, and not alike.
constexpr double kBusyShare = 0.03;

const char* engine_name(const BenchRow& row) {
  return row.engine == Engine::cuda ? "cuda" : "cpu";
}

// A layer takes microseconds on a GPU, a thousand times as long on a CPU.
int digits_of(const BenchRow& row) {
  return row.engine == Engine::cuda ? 2 : 1;
}

// `text` where `shown`, else a dash: a wrong answer has no speed.
template <typename... Args>
std::string cell(bool shown, fmt::format_string<Args...> format, Args&&... args) {
  return shown ? fmt::format(format, std::forward<Args>(args)...) : "-";
}

std::string check_text(const BenchRow& row) {
  if (!row.shows_ours()) return "FAIL";
  return row.other.ran() && !row.other.passed() ? fmt::format("FAIL ({})", row.other.name) : "pass";
}

json number(bool shown, double value) {
  return shown ? json(value) : json();
}

json spread(bool shown, const std::vector<double>& samples) {
  if (!shown || samples.empty()) return {};
  return {{"median", median(samples)}, {"p25", quantile(samples, 0.25)}, {"p75", quantile(samples, 0.75)}};
}

json samples_of(bool shown, const std::vector<double>& samples) {
  return shown && !samples.empty() ? json(samples) : json();
}

struct Field {
  const char* name;
  std::string value;
};

// One row of the CSV file; fields without a value are empty.
std::vector<Field> csv_fields(const BenchRow& row) {
  const Configuration& one = row.result.configuration;
  const bool ours = row.shows_ours(), ratio = row.shows_ratio();
  const auto value = [](bool shown, double number) {
    return shown ? fmt::format("{:.6g}", number) : std::string();
  };
  return {{"engine", engine_name(row)},
          {"mode", protocol::mode_name(one.plan.mode)},
          {"ranks", fmt::format("{}", one.input.shape.ranks)},
          {"batch", fmt::format("{}", one.input.batch)},
          {"form", protocol::form_name(one.input.form)},
          {"layers", fmt::format("{}", row.result.num_layers)},
          {"rounds", fmt::format("{}", row.rounds.first_us.size())},
          {"median_us", value(ours, row.result.timing.median_us)},
          {"p99_us", value(ours, row.result.timing.p99_us)},
          {"min_us", value(ours, quantile(row.layer_us, 0))},
          {"max_us", value(ours, quantile(row.layer_us, 1))},
          {"bytes", fmt::format("{}", row.bytes())},
          {"floor_us", value(ours, row.result.floor.us())},
          {"percent_of_floor", value(ours, row.result.percent_of_floor())},
          {"bytes_per_second", value(ours, row.bytes_per_second())},
          {"ceiling_bytes_per_second", value(true, row.ceilings.bytes_per_second)},
          {"ceiling_flops_per_second", value(true, row.ceilings.flops_per_second)},
          {"baseline_us", value(ratio, median(row.other.layer_us))},
          {"ratio", value(ratio, median(row.rounds.ratios()))},
          {"ratio_p25", value(ratio, quantile(row.rounds.ratios(), 0.25))},
          {"ratio_p75", value(ratio, quantile(row.rounds.ratios(), 0.75))},
          {"noise", value(ours, median(row.rounds.noise()))},
          {"noise_p25", value(ours, quantile(row.rounds.noise(), 0.25))},
          {"noise_p75", value(ours, quantile(row.rounds.noise(), 0.75))},
          {"check", row.passed() ? "pass" : "fail"},
          {"put", put_name(one.put)},
          {"baseline", row.other.name}};
}

template <typename Text>
std::string join_fields(const std::vector<Field>& fields, Text text) {
  std::string line;
  for (const Field& field : fields) line += (line.empty() ? "" : ",") + std::string(text(field));
  return line + "\n";
}

std::string alone_text(const char* name, const std::vector<double>& interleaved,
                       const std::vector<double>& alone) {
  return fmt::format("{} {:.3f}", name, median(interleaved) / median(alone));
}

}  // namespace

double BenchRow::bytes_per_second() const {
  const double us = result.timing.median_us;
  return us > 0 ? 1e6 * static_cast<double>(bytes()) / us : 0;
}

const std::vector<Column>& bench_columns() {
  static const std::vector<Column> columns = {{"engine", 0, Align::left},
                                              {"mode", 10, Align::left},
                                              {"form", 9, Align::left},
                                              {"put", 9, Align::left},
                                              {"T", 2},
                                              {"B", 3},
                                              {"median us", 0},
                                              {"p99 us", 8},
                                              {"min us", 8},
                                              {"max us", 8},
                                              {"bytes", 8},
                                              {"floor us", 0},
                                              {"% of floor", 0},
                                              {"GB/s", 5},
                                              {"of GB/s", 0},
                                              {"baseline us", 0},
                                              {"ratio", 0},
                                              {"A/A", 14},
                                              {"check", 0, Align::left}};
  return columns;
}

std::vector<std::string> bench_cells(const BenchRow& row) {
  const Configuration& one = row.result.configuration;
  const bool ours = row.shows_ours(), ratio = row.shows_ratio();
  const int digits = digits_of(row);
  const auto us = [&](bool shown, double value) { return cell(shown, "{:.{}f}", value, digits); };
  const std::vector<double> noise = row.rounds.noise();
  return {engine_name(row),
          protocol::mode_name(one.plan.mode),
          protocol::form_name(one.input.form),
          put_name(one.put),
          fmt::format("{}", one.input.shape.ranks),
          fmt::format("{}", one.input.batch),
          us(ours, row.result.timing.median_us),
          us(ours, row.result.timing.p99_us),
          us(ours, quantile(row.layer_us, 0)),
          us(ours, quantile(row.layer_us, 1)),
          bytes_text(row.bytes()),
          us(ours, row.result.floor.us()),
          cell(ours, "{:.1f}", row.result.percent_of_floor()),
          cell(ours, "{:.1f}", row.bytes_per_second() / 1e9),
          fmt::format("{:.1f}", row.ceilings.bytes_per_second / 1e9),
          us(ratio, median(row.other.layer_us)),
          cell(ratio, "{:.3f}", median(row.rounds.ratios())),
          cell(ours, "{:.3f} +-{:.3f}", median(noise), 0.5 * (quantile(noise, 0.75) - quantile(noise, 0.25))),
          check_text(row)};
}

std::string bench_notes(const BenchRow& row) {
  std::string notes;
  if (const std::string text = mismatch_text(row.result); !text.empty()) notes += text + "\n";
  if (row.other.ran() && !row.other.passed())
    notes += fmt::format("FAIL {}, {}: {}\n", row.other.name, configuration_text(row.result.configuration),
                         row.other.checks.first_mismatch);
  if (!row.phases_absence.empty())
    notes +=
        fmt::format("{}: no phases: {}\n", configuration_text(row.result.configuration), row.phases_absence);
  if (!row.alone_us.empty() && row.shows_ours()) {
    std::vector<double> steps = row.rounds.first_us;
    steps.insert(steps.end(), row.rounds.second_us.begin(), row.rounds.second_us.end());
    notes +=
        fmt::format("{}: step time interleaved over alone: {}", configuration_text(row.result.configuration),
                    alone_text("ours", steps, row.alone_us));
    if (row.shows_ratio())
      notes += alone_text((", " + row.other.name).c_str(), row.rounds.theirs_us, row.other.alone_us);
    notes += "\n";
  }
  if (row.load && row.load->others + row.load->stolen > kBusyShare)
    notes += fmt::format(
        "{}: other programs took {:.0f} % and the hypervisor {:.0f} % of all cores meanwhile: repeat on an "
        "idle machine\n",
        configuration_text(row.result.configuration), 100 * row.load->others, 100 * row.load->stolen);
  if (row.rounds.restless_steps > 0)
    notes += fmt::format("{}: {} steps began while threads of the other program still used a core\n",
                         configuration_text(row.result.configuration), row.rounds.restless_steps);
  return notes;
}

std::string csv_titles() {
  return join_fields(csv_fields(BenchRow()), [](const Field& field) { return field.name; });
}

std::string csv_line(const BenchRow& row) {
  return join_fields(csv_fields(row), [](const Field& field) { return field.value; });
}

json bench_json(const BenchRow& row) {
  const bool ours = row.shows_ours(), ratio = row.shows_ratio();
  json fields = result_json(row.result);
  fields["verdict"] = row.passed() ? "pass" : "fail";
  fields["engine"] = engine_name(row);
  fields["put"] = put_name(row.result.configuration.put);
  fields["min_us"] = number(ours, quantile(row.layer_us, 0));
  fields["max_us"] = number(ours, quantile(row.layer_us, 1));
  fields["bytes"] = row.bytes();
  fields["bytes_per_second"] = number(ours, row.bytes_per_second());
  fields["ceilings"] = {{"bytes_per_second", row.ceilings.bytes_per_second},
                        {"bf16_flops_per_second", row.ceilings.flops_per_second}};
  fields["rounds"] = row.rounds.first_us.size();
  fields["restless_steps"] = row.rounds.restless_steps;
  fields["load"] = row.load ? json{{"others", row.load->others}, {"stolen", row.load->stolen}} : json();
  fields["ratio"] = spread(ratio, row.rounds.ratios());
  fields["noise"] = spread(ours, row.rounds.noise());
  fields["step_us"] = {{"ours", samples_of(ours, row.rounds.first_us)},
                       {"ours_again", samples_of(ours, row.rounds.second_us)},
                       {"baseline", samples_of(ratio, row.rounds.theirs_us)},
                       {"ours_alone", samples_of(ours, row.alone_us)},
                       {"baseline_alone", samples_of(ratio, row.other.alone_us)}};
  if (ours && !row.phases.empty())
    for (const PhaseTime& phase : row.phases) fields["phases"][phase.name] = phase.us;
  if (!row.other.ran()) {
    fields["baseline"] = {{"name", row.other.name}, {"absence", row.other.absence}};
    return fields;
  }
  fields["baseline"] = {{"name", row.other.name},
                        {"description", row.other.description},
                        {"median_us", number(ratio, median(row.other.layer_us))},
                        {"p99_us", number(ratio, quantile(row.other.layer_us, 0.99))},
                        {"min_us", number(ratio, quantile(row.other.layer_us, 0))},
                        {"worst_row_error", row.other.checks.worst_error},
                        {"worst_row_bound", row.other.checks.worst_bound},
                        {"rows_checked", row.other.checks.rows_checked},
                        {"verdict", row.other.passed() ? "pass" : "fail"}};
  return fields;
}

}  // namespace moetail::cli
