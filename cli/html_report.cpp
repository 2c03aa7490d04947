// SPDX-License-Identifier: Apache-2.0
// Plots and table of the benchmark's page.
#include "cli/html_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "cli/svg_plot.hpp"

namespace moetail::cli {
namespace {

using nlohmann::json;

constexpr const char* kStyle =
    "body{font-family:sans-serif;margin:2em auto;max-width:72em;color:#222}"
    "table{border-collapse:collapse;font-size:90%}th,td{padding:.25em "
    ".6em;text-align:right;border-bottom:1px "
    "solid #ddd}th{background:#f4f4f4}td.left,th.left{text-align:left}"
    "figure{margin:1.5em 0}code{background:#f4f4f4}";

/// A number of the report; NaN where it has none, which plots leave out and tables show as a dash.
double number(const json& value) {
  return value.is_number() ? value.get<double>() : std::nan("");
}
double median_of(const json& spread) {
  return spread.is_object() ? number(spread.value("median", json())) : std::nan("");
}

std::string text_of(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// One line of a plot for each T, mode asked for and form.
std::string line_name(const json& row) {
  std::string name = fmt::format("T={} {}", row.at("tp").get<int>(), text_of(row.at("mode_asked")));
  if (row.at("form") != "rows") name += " " + text_of(row.at("form"));
  if (row.at("put") != "-") name += " " + text_of(row.at("put"));
  return name;
}

template <class Value>
std::vector<Series> lines(const json& rows, const std::string& prefix, bool is_dashed, Value value) {
  std::vector<Series> series;
  std::map<std::string, std::size_t> places;
  for (const json& row : rows) {
    const std::string name = prefix + line_name(row);
    const auto [place, is_new] = places.emplace(name, series.size());
    if (is_new) series.push_back({name, {}, is_dashed});
    series[place->second].points.push_back({number(row.at("batch")), value(row)});
  }
  return series;
}

std::string figure(const std::string& svg, const std::string& caption) {
  return "<figure>" + svg + "<figcaption>" + html_escaped(caption) + "</figcaption></figure>\n";
}

std::string plots(const json& rows) {
  std::vector<Series> latency =
      lines(rows, "", false, [](const json& row) { return number(row["median_us"]); });
  for (auto& one : lines(rows, "floor ", true, [](const json& row) { return number(row["floor_us"]); }))
    latency.push_back(std::move(one));
  const std::string baseline = rows.empty() ? "" : text_of(rows[0]["baseline"]["name"]);
  for (auto& one : lines(rows, baseline + " ", false,
                         [](const json& row) { return number(row["baseline"].value("median_us", json())); }))
    latency.push_back(std::move(one));
  std::string html = figure(
      svg_plot({"Latency of a layer", "B, tokens", "median, us", Scale::logarithmic, {}}, latency),
      "Median of one layer with weights of its own. The floor is the larger of bytes over measured bandwidth "
      "and, on a CPU, operations over measured peak or, on a GPU, what has to happen one after the other.");
  html += figure(
      svg_plot({"Percent of the floor", "B, tokens", "%", Scale::linear, {100}},
               lines(rows, "", false, [](const json& row) { return number(row["percent_of_floor"]); })),
      "100 % would be the machine's own limit.");
  std::vector<Series> ratios = lines(rows, "ours over " + baseline + ", ", false,
                                     [](const json& row) { return median_of(row["ratio"]); });
  for (auto& one : lines(rows, "noise, ", true, [](const json& row) { return median_of(row["noise"]); }))
    ratios.push_back(std::move(one));
  return html + figure(svg_plot({"Ratio to the baseline", "B, tokens", "ratio", Scale::linear, {1}}, ratios),
                       "Below 1 ours is faster. Noise is ours over ours: how far a ratio of two equal things "
                       "strays.");
}

/// A bar for each batch of the first (T, mode, put) that was traced: one page shows the shape of it. Empty where none was.
std::string phase_plot(const std::vector<BenchRow>& rows) {
  const BenchRow* first = nullptr;
  std::vector<std::string> bars;
  std::vector<Stack> stacks;
  for (const BenchRow& row : rows) {
    if (row.phases.empty() || !row.shows_ours()) continue;
    if (first == nullptr) first = &row;
    const Configuration &one = row.result.configuration, &shown = first->result.configuration;
    if (one.input.shape.ranks != shown.input.shape.ranks || one.mode != shown.mode || one.put != shown.put)
      continue;
    bars.push_back(fmt::format("{}", one.input.batch));
    for (const PhaseTime& phase : row.phases) {
      auto stack = std::ranges::find(stacks, phase.name, &Stack::name);
      if (stack == stacks.end()) stack = stacks.insert(stacks.end(), {phase.name, {}});
      stack->heights.resize(bars.size());
      stack->heights.back() = phase.us;
    }
  }
  if (first == nullptr) return "";
  const Configuration& shown = first->result.configuration;
  const std::string title = fmt::format("Breakdown by phase, T={} {} {}", shown.input.shape.ranks,
                                        protocol::mode_name(shown.mode), put_name(shown.put));
  return figure(
      svg_stacked_bars({title, "B, tokens", "us of a warp", Scale::linear, {}}, bars, stacks),
      "Median over the layers of the mean over a tail's compute warps, waits included, in kernels that were "
      "built for the trace. A layer's prologue runs beside the layer before it, so a bar is higher than the "
      "layer is long.");
}

/// The table of the terminal.
std::string table(const std::vector<BenchRow>& rows) {
  const std::vector<Column>& columns = bench_columns();
  const auto line = [&](const char* tag, auto text) {
    std::string html = "<tr>";
    for (std::size_t i = 0; i < columns.size(); ++i)
      html += fmt::format("<{0}{1}>{2}</{0}>", tag, columns[i].align == Align::left ? " class=\"left\"" : "",
                          html_escaped(text(i)));
    return html + "</tr>\n";
  };
  std::string html = "<table>" + line("th", [&](std::size_t i) { return columns[i].title; });
  for (const BenchRow& row : rows) {
    const std::vector<std::string> cells = bench_cells(row);
    html += line("td", [&](std::size_t i) { return cells[i]; });
  }
  return html + "</table>\n";
}

/// What computed, beside the cores.
std::string processor_text(const json& machine) {
  return machine.contains("gpu") ? "; " + text_of(machine.at("gpu"))
                                 : ", " + text_of(machine.at("dispatch_target")) + " arithmetic";
}

std::string method(const json& report) {
  const json& machine = report.at("machine");
  const json& model = report.at("model");
  std::string command = "moetail";  // for whatever path it was called by
  const json& words = report.at("command_line");
  for (std::size_t i = 1; i < words.size(); ++i) command += " " + text_of(words[i]);
  std::string html = fmt::format(
      "<p>{}, {} cores{}; version {}, {}. Hidden {}, latent {}, top-k {}, {} layers with "
      "weights "
      "of their own.</p>\n<p><code>{}</code></p>\n",
      html_escaped(text_of(machine.at("cpu"))), machine.at("cores").get<int>(),
      html_escaped(processor_text(machine)), html_escaped(text_of(report.at("version"))),
      html_escaped(text_of(report.at("date"))), model.at("hidden").get<int>(), model.at("latent").get<int>(),
      model.at("top_k").get<int>(), model.at("layers").size(), html_escaped(command));
  std::string notes;
  if (report.contains("method")) notes += "<p>" + html_escaped(text_of(report.at("method"))) + "</p>\n";
  for (const json& row : report.at("results")) {
    const json& baseline = row.at("baseline");
    const std::string note = baseline.contains("absence")
                                 ? "No ratio: " + text_of(baseline.at("absence"))
                                 : "Baseline: " + text_of(baseline.at("description"));
    if (notes.find(html_escaped(note)) == std::string::npos) notes += "<p>" + html_escaped(note) + "</p>\n";
  }
  return html + notes +
         "<p>Every row was checked against a float64 oracle; a row whose check failed has no time. Steps of "
         "ours and of the baseline were run in turn.</p>\n";
}

}  // namespace

std::string html_report(const json& report, const std::vector<BenchRow>& rows) {
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>moetail "
         "bench</title><style>" +
         std::string(kStyle) + "</style></head><body>\n<h1>moetail bench</h1>\n" + method(report) +
         plots(report.at("results")) + phase_plot(rows) + table(rows) + "</body></html>\n";
}

}  // namespace moetail::cli
