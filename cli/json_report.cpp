// SPDX-License-Identifier: Apache-2.0
// Fields of the JSON report.
#include "cli/json_report.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <iostream>

#include "base/error.hpp"

namespace moetail::cli {
namespace {

using nlohmann::json;

json plan_json(const Plan& plan) {
  return {{"shares_reduced", plan.shares_reduced},
          {"clusters", plan.clusters},
          {"columns_per_cluster", plan.columns_per_cluster},
          {"slices", plan.slices},
          {"weight_bytes", plan.weight_bytes},
          {"input_bytes", plan.input_bytes},
          {"output_bytes", plan.output_bytes},
          {"mailbox_bytes", plan.mailbox_bytes},
          {"flops", plan.flops}};
}

}  // namespace

ReportFile::ReportFile(const std::string& path) : path_(path) {
  if (path.empty() || is_stdout()) return;
  file_.open(path);
  if (!file_) base::fail(Code::file, "--json = {}: cannot be written ({})", path, std::strerror(errno));
}

void ReportFile::write(const json& report) {
  if (path_.empty()) return;
  std::ostream& out = is_stdout() ? std::cout : file_;
  // Texts from file names may be no UTF-8.
  out << report.dump(2, ' ', false, json::error_handler_t::replace) << std::endl;
  if (!out) base::fail(Code::file, "--json = {}: could not be written whole", path_);
}

json report_head(const SessionOptions& session, const Machine& machine, const Ceilings& ceilings) {
  return {{"tool", "moetail"},
          {"version", MOETAIL_VERSION},
          {"report_version", 1},
          {"date", utc_now()},
          {"command_line", session.command_line},
          {"engine", session.engine == Engine::cuda ? "cuda" : "cpu"},
          {"world", session.processes                    ? "processes"
                    : session.world == WorldKind::replay ? "replay"
                                                         : "virtual"},
          {"seed", session.seed},
          {"machine",
           {{"cpu", machine.cpu},
            {"cores", machine.cores},
            {"memory_bytes", machine.memory_bytes},
            {"system", machine.system},
            {"dispatch_target", ceilings.target},
            {"bytes_per_second", ceilings.bytes_per_second},
            {"bf16_flops_per_second", ceilings.flops_per_second},
            {"ceilings_measured", ceilings.is_measured}}}};
}

json model_json(const RunOptions& options, const RunSetup& setup) {
  const Shape& shape = setup.configurations.front().input.shape;
  const double eps = std::stod(fmt::format("{}", shape.eps));  // 1e-5 rather than the float's further digits
  json model = {{"hidden", shape.hidden},
                {"latent", shape.latent},
                {"top_k", shape.top_k},
                {"capacity", shape.capacity},
                {"eps", eps},
                {"layers", setup.layers}};
  model["checkpoint"] = options.checkpoint.empty() ? json() : json(options.checkpoint);
  model["inputs"] = options.inputs.empty() ? json() : json(options.inputs);
  return model;
}

json result_json(const Result& result) {
  const Configuration& one = result.configuration;
  const Checks& checks = result.checks;
  const bool passed = checks.passed();
  const bool has_floor = result.floor.us() > 0;
  const auto time = [&](double us) { return passed ? json(us) : json(); };
  return {{"mode", protocol::mode_name(one.plan.mode)},
          {"mode_asked", protocol::mode_name(one.mode)},
          {"tp", one.input.shape.ranks},
          {"batch", one.input.batch},
          {"form", protocol::form_name(one.input.form)},
          {"weights_dtype", one.input.weights == WeightType::bf16 ? "bf16" : "fp32"},
          {"residual", one.input.residual},
          {"layers", result.num_layers},
          {"steps", result.steps},
          {"warmup_steps", 1},
          {"samples", result.timing.samples},
          {"median_us", time(result.timing.median_us)},
          {"p99_us", time(result.timing.p99_us)},
          {"floor_us", has_floor ? time(result.floor.us()) : json()},
          {"floor_bytes_us", has_floor ? time(result.floor.bytes_us) : json()},
          {"floor_flops_us", has_floor ? time(result.floor.flops_us) : json()},
          {"floor_chain_us", result.floor.chain_us > 0 ? time(result.floor.chain_us) : json()},
          {"percent_of_floor", has_floor ? time(result.percent_of_floor()) : json()},
          {"worst_row_error", checks.worst_error},
          {"worst_row_bound", checks.worst_bound},
          {"worst_row",
           {{"step", checks.worst_step}, {"layer", checks.worst_layer}, {"token", checks.worst_token}}},
          {"ranks_equal", checks.ranks_equal},
          {"repeat_equal", checks.repeat_equal},
          {"modes_equal", checks.modes_equal},
          {"rows_checked", checks.rows_checked},
          {"rows_total", checks.rows_total},
          {"output_hash", fmt::format("{:016x}", checks.output_hash)},
          {"first_mismatch", checks.first_mismatch.empty() ? json() : json(checks.first_mismatch)},
          {"plan", plan_json(one.plan)},
          {"verdict", passed ? "pass" : "fail"}};
}

}  // namespace moetail::cli
