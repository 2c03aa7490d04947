// SPDX-License-Identifier: Apache-2.0
#include "verify/explore/report.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>

namespace moetail::explore {

bool is_fulfilled(const Case& explored, const SearchResult& result) {
  return explored.is_control() ? result.violation.has_value() : !result.violation && result.complete;
}

std::string json_line(const Case& explored, const SearchResult& result, const std::string& trace_file) {
  nlohmann::ordered_json line;
  line["case"] = explored.name;
  line["kind"] = explored.is_control() ? "control" : "property";
  line["config"] = explored.config.size();
  line["executions"] = result.executions;
  line["states"] = result.states;
  line["depth"] = result.depth;
  line["complete"] = result.complete;
  line["verdict"] = result.violation ? "refuted" : "holds";
  if (result.violation) line["violated"] = property_text(result.violation->property);
  if (!explored.safeguard.empty()) line["without"] = explored.safeguard;
  line["seconds"] = std::round(result.seconds * 1000) / 1000;
  line["trace"] = trace_file.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(trace_file);
  return line.dump();
}

std::string text_line(const Case& explored, const SearchResult& result) {
  std::string verdict = "holds";
  if (result.violation) verdict = fmt::format("refuted: {}", property_text(result.violation->property));
  if (!result.violation && !result.complete) verdict = "holds so far: the search was cut short";
  return fmt::format("{} {:<32} {}  {:>7} executions {:>10} states  depth {:>5}  {:7.2f} s  {}",
                     is_fulfilled(explored, result) ? "ok  " : "FAIL", explored.name, explored.config.size(),
                     result.executions, result.states, result.depth, result.seconds, verdict);
}

std::string trace_text(const Case& explored, const SearchResult& result) {
  std::string text = fmt::format("case {}: {} ranks, {} blocks a rank, {} calls\n", explored.name,
                                 explored.config.ranks, explored.config.blocks, explored.config.calls.size());
  if (!explored.safeguard.empty())
    text += fmt::format("built without the safeguard {}\n", explored.safeguard);
  text += "\n";
  int number = 0;
  for (const std::string& step : result.trace) text += fmt::format("{:4}  {}\n", ++number, step);
  text += fmt::format("\n{}\n{}\n", property_text(result.violation->property), result.violation->text);
  return text;
}

}  // namespace moetail::explore
