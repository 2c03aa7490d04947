// SPDX-License-Identifier: Apache-2.0
// moetail trace: what every thread of every rank does in some decode steps, as a trace file and as a table of phases.
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
#include "cli/setup.hpp"
#include "cli/step_driver.hpp"
#include "cli/table.hpp"

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

/// The trace event format of Chrome, which Perfetto reads: a process a rank, complete events in microseconds.
json chrome_trace(const std::vector<Trace::Span>& spans) {
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
    name("thread_name", rank, thread, fmt::format("thread {}", thread));
  }
  return {{"displayTimeUnit", "ns"}, {"traceEvents", events}};
}

json phases_json(const std::vector<Phase>& phases, int layers) {
  json rows = json::array();
  for (const Phase& phase : phases)
    rows.push_back({{"name", phase.name},
                    {"passes", phase.us.size()},
                    {"median_us", bench::median(phase.us)},
                    {"p99_us", bench::quantile(phase.us, 0.99)},
                    {"us_a_layer", phase.total_us / layers}});
  return rows;
}

void print_phases(const std::vector<Phase>& phases, int layers) {
  double all_us = 0;
  for (const Phase& phase : phases) all_us += phase.total_us;
  std::vector<std::vector<std::string>> rows;
  rows.reserve(phases.size());
  for (const Phase& phase : phases)
    rows.push_back({phase.name, fmt::format("{}", phase.us.size()),
                    fmt::format("{:.1f}", bench::median(phase.us)),
                    fmt::format("{:.1f}", bench::quantile(phase.us, 0.99)),
                    fmt::format("{:.1f}", phase.total_us / layers),
                    fmt::format("{:.1f}", 100 * phase.total_us / all_us)});
  const std::vector<Column> columns = {
      {"phase", 0, Align::left}, {"passes", 0}, {"median us", 0}, {"p99 us", 0}, {"us a layer", 0}, {"%", 0}};
  fmt::print(
      "{}\nFrom each site to the next on the same thread, waits included; us a layer: all threads of all "
      "ranks together.\n",
      table_text(columns, rows));
}

}  // namespace

int trace_command(const TraceOptions& given) {
  RunOptions options = given.run;
  if (options.session.engine == Engine::cuda)
    base::bad_argument("--engine", "cuda", "cpu: the CUDA engine's kernels record no trace");
  options.session.engine = Engine::cpu;
  options.session.check_supported();
  const RunSetup setup = make_setup(options);
  if (setup.configurations.size() != 1)
    base::bad_argument("--tp, --batch, --mode", fmt::format("{} combinations", setup.configurations.size()),
                       "one: a trace shows one configuration");
  const Configuration& one = setup.configurations.front();
  check_memory(setup, this_machine().available_bytes);
  ReportFile report_file(options.session.json_file);
  base::AtomicFile out(given.out_file);  // a trace that is there stays until the new one is whole

  Progress progress(options.session.quiet);
  const std::vector<LayerWeights> weights =
      synthetic_weights(options.session.seed, setup.layers, setup.hidden, setup.latent, progress);
  const int layers = static_cast<int>(weights.size());
  const Inputs inputs = Inputs::synthetic(one.input, layers, progress);
  WorldOptions world = options.session.world_options(options.call.policy_file);
  world.trace = std::make_shared<Trace>();
  StepDriver driver(world, weights, inputs, one.mode, one.plan.mode);
  const int steps = kWarmUpSteps + options.steps;
  Judge judge(weights, inputs, one.plan.mode, steps);
  std::vector<Trace::Span> spans;
  std::size_t dropped = 0;
  progress.begin(fmt::format("{} steps", steps), static_cast<std::uint64_t>(steps));
  for (int step = 0; step < steps; ++step) {
    if (step == kWarmUpSteps) world.trace->clear();
    driver.run_step(step);
    if (step == steps - 1) spans = world.trace->spans(), dropped = world.trace->dropped();
    judge.check_step(driver, step);
    progress.advance();
  }
  progress.end();
  if (!judge.checks().passed()) {
    fmt::print("FAIL {}: no trace of wrong answers\n", judge.checks().first_mismatch);
    return kCheckFailed;
  }

  const std::string text = chrome_trace(spans).dump();
  out.write_at(0, std::as_bytes(std::span(text)));
  out.commit();
  const std::vector<Phase> phases = phases_of(spans);
  const int traced_layers = layers * options.steps;
  if (!report_file.is_stdout()) {
    fmt::print("{} T={} B={}, {} steps of {} layers\n\n", protocol::mode_name(one.plan.mode),
               one.input.shape.ranks, one.input.batch, options.steps, layers);
    print_phases(phases, traced_layers);
    if (dropped > 0) fmt::print("{} marks found no room: trace fewer steps or layers\n", dropped);
    fmt::print("{} spans in {}\n", spans.size(), given.out_file);
  }
  report_file.write({{"tool", "moetail"},
                     {"version", MOETAIL_VERSION},
                     {"command_line", options.session.command_line},
                     {"spans", spans.size()},
                     {"dropped", dropped},
                     {"phases", phases_json(phases, traced_layers)},
                     {"verdict", "pass"}});
  return kAllPassed;
}

}  // namespace moetail::cli
