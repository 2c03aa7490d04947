// SPDX-License-Identifier: Apache-2.0
// moetail run: decode steps of every configuration, checked and timed.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "cli/commands.hpp"
#include "cli/exit_code.hpp"
#include "cli/json_report.hpp"
#include "cli/process_steps.hpp"
#include "cli/step_driver.hpp"

namespace moetail::cli {
namespace {

std::vector<LayerWeights> make_weights(const RunOptions& options, const RunSetup& setup, Progress& progress) {
  if (setup.checkpoint) return checkpoint_weights(*setup.checkpoint, setup.layers, progress);
  return synthetic_weights(options.session.seed, setup.layers, setup.hidden, setup.latent, progress);
}

Inputs make_inputs(const RunSetup& setup, const InputSpec& spec, Progress& progress) {
  if (setup.step) return Inputs::captured(spec, *setup.step, setup.layers);
  return Inputs::synthetic(spec, static_cast<int>(setup.layers.size()), progress);
}

std::unique_ptr<StepRunner> make_runner(const RunOptions& options, const Configuration& one,
                                        const std::vector<LayerWeights>& weights, const Inputs& inputs) {
  const WorldOptions world = options.session.world_options(options.call.policy_file);
  if (options.session.processes)
    return std::make_unique<ProcessSteps>(world, weights, inputs, one.mode, one.plan.mode);
  return std::make_unique<StepDriver>(world, weights, inputs, one.mode, one.plan.mode);
}

// Runs and checks all steps of one configuration.
Result run_configuration(const RunOptions& options, const RunSetup& setup, const Configuration& one,
                         const std::vector<LayerWeights>& weights, const Ceilings& ceilings,
                         Progress& progress) {
  Result result;
  result.configuration = one;
  result.num_layers = static_cast<int>(weights.size());
  result.steps = options.steps;
  // The ceilings are the processor's, and say nothing of a GPU.
  const bool on_gpu = options.session.engine == Engine::cuda;
  if (!on_gpu) result.floor = floor_of(one.plan, ceilings);
  const Inputs inputs = make_inputs(setup, one.input, progress);
  const std::unique_ptr<StepRunner> runner = make_runner(options, one, weights, inputs);
  Judge judge(weights, inputs, one.plan.mode, options.steps);
  std::vector<double> samples;
  progress.begin(fmt::format("{} steps, {} T={} B={}", options.steps, protocol::mode_name(one.plan.mode),
                             one.input.shape.ranks, one.input.batch),
                 static_cast<std::uint64_t>(options.steps));
  for (int step = 0; step < options.steps; ++step) {
    runner->run_step(step);
    // The first step warms up: pages, caches, thread pools.
    if (step > 0) samples.insert(samples.end(), runner->layer_us().begin(), runner->layer_us().end());
    judge.check_step(*runner, step);
    progress.advance();
  }
  progress.end();
  result.timing = timing_of(std::move(samples));
  result.checks = judge.checks();
  return result;
}

// Modes whose numeric contract is the same give the same bits for the same inputs.
void compare_with_other_modes(Result& result, const std::vector<Result>& earlier) {
  const Configuration& one = result.configuration;
  for (const Result& other : earlier) {
    const Configuration& two = other.configuration;
    const bool same_call =
        one.input.shape.ranks == two.input.shape.ranks && one.input.batch == two.input.batch;
    const bool same_contract = (one.plan.mode == Mode::twoshot) == (two.plan.mode == Mode::twoshot);
    if (!same_call || !same_contract || other.checks.output_hash == result.checks.output_hash) continue;
    result.checks.modes_equal = false;
    result.checks.note_mismatch(
        fmt::format("the last two steps differ from those of {} mode", protocol::mode_name(two.plan.mode)));
  }
}

class Printer {
 public:
  Printer(bool silent, const SessionOptions& session)
      : silent_(silent), on_gpu_(session.engine == Engine::cuda), processes_(session.processes) {}

  void begin(const RunSetup& setup) const {
    if (silent_) return;
    fmt::print("{}{}\n\n{}\n", setup_text(setup), processes_ ? ", one process a rank" : "",
               table_titles(result_columns()));
    std::fflush(stdout);
  }
  void row(const Result& result) const {
    if (silent_) return;
    fmt::print("{}\n", table_line(result_columns(), result_cells(result)));
    std::fflush(stdout);
  }
  void end(const std::vector<Result>& results, const Machine& machine, const Ceilings& ceilings) const {
    if (silent_) return;
    fmt::print("\n");
    for (const Result& result : results)
      if (const std::string text = mismatch_text(result); !text.empty()) fmt::print("{}\n", text);
    const auto beats_floor = [](const Result& result) { return result.percent_of_floor() > 100; };
    if (std::any_of(results.begin(), results.end(), beats_floor))
      fmt::print(
          "A median below its floor says that the machine was busier while its ceilings were measured.\n");
    fmt::print(
        "Times are of one layer, from all steps but the first. First and last step are checked whole, the "
        "others "
        "by {} rows.\n{}\n{}, {} cores\n",
        Judge::kSampledRows,
        on_gpu_ ? "They are the mean of a step whose launches were enqueued one by one, host work included; "
                  "a graph has none of it. "
                  "No floor: the ceilings are the processor's."
                : floor_text(ceilings),
        machine.cpu, machine.cores);
  }

 private:
  bool silent_;
  bool on_gpu_;
  bool processes_;
};

}  // namespace

int run_command(const RunOptions& given) {
  RunOptions options = given;
  options.session.choose_engine();
  options.session.check_supported();
  const RunSetup setup = make_setup(options);
  const Machine machine = this_machine();
  check_memory(setup, machine.available_bytes);
  ReportFile report_file(options.session.json_file);

  Progress progress(options.session.quiet);
  const Ceilings ceilings = find_ceilings();
  nlohmann::json report = report_head(options.session, machine, ceilings);
  report["model"] = model_json(options, setup);
  report["results"] = nlohmann::json::array();

  const std::vector<LayerWeights> weights = make_weights(options, setup, progress);
  const Printer printer(report_file.is_stdout(), options.session);
  printer.begin(setup);
  std::vector<Result> results;
  bool passed = true;
  try {
    for (const Configuration& one : setup.configurations) {
      Result result = run_configuration(options, setup, one, weights, ceilings, progress);
      compare_with_other_modes(result, results);
      printer.row(result);
      passed = passed && result.checks.passed();
      report["results"].push_back(result_json(result));
      results.push_back(std::move(result));
    }
  } catch (const std::exception& exception) {
    const auto* error = dynamic_cast<const Error*>(&exception);
    report["error"] = {{"code", code_name(error != nullptr ? error->code() : Code::internal)},
                       {"message", exception.what()}};
    report["verdict"] = "error";
    report_file.write(report);
    throw;
  }
  progress.end();
  printer.end(results, machine, ceilings);
  report["verdict"] = passed ? "pass" : "fail";
  report_file.write(report);
  return passed ? kAllPassed : kCheckFailed;
}

}  // namespace moetail::cli
