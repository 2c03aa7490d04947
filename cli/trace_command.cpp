// SPDX-License-Identifier: Apache-2.0
// moetail trace: what every thread of every rank, or every warp of one on a GPU, does in some decode steps, as a trace file and as a table of
// phases.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "base/atomic_file.hpp"
#include "bench/statistics.hpp"
#include "cli/commands.hpp"
#include "cli/contestant.hpp"
#include "cli/exit_code.hpp"
#include "cli/json_report.hpp"
#include "cli/judge.hpp"
#include "cli/phases.hpp"
#include "cli/setup.hpp"
#include "cli/step_driver.hpp"
#include "cli/table.hpp"
#include "cli/traced_steps.hpp"

namespace moetail::cli {
namespace {

using nlohmann::json;

/// What all threads spent in one phase.
struct Phase {
  std::string name;
  std::vector<double> us;  // a pass each
  double total_us = 0;
};

/// Those with the most time first.
std::vector<Phase> phases_of(const std::vector<Trace::Span>& spans) {
  std::map<std::string, Phase> by_name;
  for (const auto& span : spans) {
    Phase& phase = by_name[span.name];
    phase.name = span.name;
    phase.us.push_back(span.end_us - span.begin_us);
    phase.total_us += phase.us.back();
  }
  std::vector<Phase> phases;
  phases.reserve(by_name.size());
  for (auto& [name, phase] : by_name) phases.push_back(std::move(phase));
  std::ranges::sort(phases, std::greater(), &Phase::total_us);
  return phases;
}

/// "thread 3" or "block 0 warp 3".
std::string thread_name(Engine engine, int thread) {
  return engine == Engine::cuda
             ? fmt::format("block {} warp {}", thread / Trace::kBlockWarps, thread % Trace::kBlockWarps)
             : fmt::format("thread {}", thread);
}

/// The trace event format of Chrome, which Perfetto reads: a process a rank, complete events in microseconds.
json chrome_trace(const std::vector<Trace::Span>& spans, Engine engine) {
  json events = json::array();
  std::set<std::pair<int, int>> threads;
  for (const auto& span : spans) {
    threads.insert({span.rank, span.thread});
    events.push_back({{"name", span.name},
                      {"ph", "X"},
                      {"ts", span.begin_us},
                      {"dur", span.end_us - span.begin_us},
                      {"pid", span.rank},
                      {"tid", span.thread},
                      {"args", {{"layer", span.layer}, {"call", span.call}}}});
  }
  const auto name = [&](const char* what, int rank, int thread, const std::string& text) {
    events.push_back(
        {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", thread}, {"args", {{"name", text}}}});
  };
  for (const auto& [rank, thread] : threads) {
    name("process_name", rank, thread, fmt::format("rank {}", rank));
    name("thread_name", rank, thread, thread_name(engine, thread));
  }
  return {{"displayTimeUnit", "ns"}, {"traceEvents", events}};
}

/// What is printed.
struct Traced {
  std::vector<Phase> phases;
  std::map<std::string, double> layer_us;  ///< GPU: phase_times
  int layers = 0;                          ///< of all steps
  int threads =
      1;  ///< what `us a layer` is divided by: the warps on a GPU, where all do the same; 1 on the CPU engine
};

json phases_json(const Traced& traced) {
  json rows = json::array();
  for (const Phase& phase : traced.phases) {
    rows.push_back({{"name", phase.name},
                    {"passes", phase.us.size()},
                    {"median_us", bench::median(phase.us)},
                    {"p99_us", bench::quantile(phase.us, 0.99)},
                    {"us_a_layer", phase.total_us / traced.layers / traced.threads}});
    if (const auto found = traced.layer_us.find(phase.name); found != traced.layer_us.end())
      rows.back()["median_layer_us"] = found->second;
  }
  return rows;
}

void print_phases(const Traced& traced, Engine engine) {
  double all_us = 0;
  for (const Phase& phase : traced.phases) all_us += phase.total_us;
  std::vector<std::vector<std::string>> rows;
  rows.reserve(traced.phases.size());
  for (const Phase& phase : traced.phases) {
    rows.push_back({phase.name, fmt::format("{}", phase.us.size()),
                    fmt::format("{:.2f}", bench::median(phase.us)),
                    fmt::format("{:.2f}", bench::quantile(phase.us, 0.99)),
                    fmt::format("{:.2f}", phase.total_us / traced.layers / traced.threads),
                    fmt::format("{:.1f}", 100 * phase.total_us / all_us)});
    if (const auto found = traced.layer_us.find(phase.name); found != traced.layer_us.end())
      rows.back().push_back(fmt::format("{:.2f}", found->second));
  }
  std::vector<Column> columns = {{"phase", 0, Align::left}, {"passes", 0}, {"median us", 0}, {"p99 us", 0},
                                 {"us a layer", 0},         {"%", 0}};
  if (!traced.layer_us.empty()) columns.push_back({"median layer us", 0});
  fmt::print(
      "{}\n{}\n", table_text(columns, rows),
      engine == Engine::cuda
          ? "Of each warp, waits included; us a layer: mean over the warps; median layer us: median over the "
            "layers "
            "of the mean over the compute warps. A layer begins while the one "
            "before it runs: "
            "its prologue is not its own time alone."
          : "From each site to the next on the same thread, waits included; us a layer: all threads of all "
            "ranks together.");
}

RunOptions settled(RunOptions options) {
  options.session.choose_engine();
  const bool is_gpu = options.session.engine == Engine::cuda;
  if (is_gpu) choose_replay(options.session, options.call);
  if (options.steps == 0) options.steps = is_gpu ? 1 : 3;
  options.session.check_supported();
  return options;
}

}  // namespace

TracedSteps trace_on_cpu(const RunOptions& options, const RunSetup& setup, Progress& progress) {
  const Configuration& one = setup.configurations.front();
  check_memory(setup, this_machine().available_bytes);
  const std::vector<LayerWeights> weights =
      synthetic_weights(options.session.seed, setup.layers, setup.hidden, setup.latent, progress);
  const int layers = static_cast<int>(weights.size());
  const Inputs inputs = Inputs::synthetic(one.input, layers, progress);
  WorldOptions world = options.session.world_options(options.call.policy_file);
  world.trace = std::make_shared<Trace>();
  StepDriver driver(world, weights, inputs, one.mode, one.plan.mode);
  const int steps = kWarmUpSteps + options.steps;
  Judge judge(weights, inputs, one.plan.mode, steps);
  TracedSteps traced;
  traced.layers = layers;
  progress.begin(fmt::format("{} steps", steps), static_cast<std::uint64_t>(steps));
  for (int step = 0; step < steps; ++step) {
    if (step == kWarmUpSteps) world.trace->clear();
    driver.run_step(step);
    if (step == steps - 1) traced.spans = world.trace->spans(), traced.dropped = world.trace->dropped();
    judge.check_step(driver, step);
    progress.advance();
  }
  progress.end();
  traced.checks = judge.checks();
  return traced;
}

int trace_command(const TraceOptions& given) {
  const RunOptions options = settled(given.run);
  const RunSetup setup = make_setup(options);
  if (setup.configurations.size() != 1)
    base::bad_argument("--tp, --batch, --mode", fmt::format("{} combinations", setup.configurations.size()),
                       "one: a trace shows one configuration");
  const Configuration& one = setup.configurations.front();
  const Engine engine = options.session.engine;
  ReportFile report_file(options.session.json_file);
  base::AtomicFile out(given.out_file);  // a trace that is there stays until the new one is whole

  Progress progress(options.session.quiet);
  const TracedSteps steps = engine == Engine::cuda ? trace_on_gpu(options, setup, progress)
                                                   : trace_on_cpu(options, setup, progress);
  if (!steps.checks.passed()) {
    fmt::print("FAIL {}: no trace of wrong answers\n", steps.checks.first_mismatch);
    return kCheckFailed;
  }

  const std::string text = chrome_trace(steps.spans, engine).dump();
  out.write_at(0, std::as_bytes(std::span(text)));
  out.commit();
  Traced traced{phases_of(steps.spans), {}, steps.layers * options.steps, 1};
  if (engine == Engine::cuda) {
    std::set<int> warps;
    for (const auto& span : steps.spans) warps.insert(span.thread);
    traced.threads = std::max(1, static_cast<int>(warps.size()));
    for (const auto& [name, us] : phase_times(steps.spans)) traced.layer_us[name] = us;
  }
  if (!report_file.is_stdout()) {
    fmt::print("{} T={} B={}, {} steps of {} layers\n\n", protocol::mode_name(one.plan.mode),
               one.input.shape.ranks, one.input.batch, options.steps, steps.layers);
    print_phases(traced, engine);
    if (steps.dropped > 0) fmt::print("{} marks found no room: trace fewer steps or layers\n", steps.dropped);
    fmt::print("{} spans in {}\n", steps.spans.size(), given.out_file);
  }
  report_file.write({{"tool", "moetail"},
                     {"version", MOETAIL_VERSION},
                     {"command_line", options.session.command_line},
                     {"engine", engine == Engine::cuda ? "cuda" : "cpu"},
                     {"spans", steps.spans.size()},
                     {"dropped", steps.dropped},
                     {"phases", phases_json(traced)},
                     {"verdict", "pass"}});
  return kAllPassed;
}

}  // namespace moetail::cli
