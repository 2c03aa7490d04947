// SPDX-License-Identifier: Apache-2.0
// moetail tune: measures the ways a call can run on this machine and writes the mode table that takes the fastest.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/atomic_file.hpp"
#include "bench/statistics.hpp"
#include "cli/commands.hpp"
#include "cli/contestant.hpp"
#include "cli/exit_code.hpp"
#include "cli/judge.hpp"
#include "cli/machine.hpp"
#include "cli/setup.hpp"
#include "cli/step_driver.hpp"
#include "cli/table.hpp"
#include "cli/tune.hpp"

namespace moetail::cli {
namespace {

/// One way to run a call: a mode, and whether publish shares.
struct Way {
  const char* name;
  Mode mode;
  int share_from;
};
constexpr std::array<Way, 3> kWays = {{{"front", Mode::front, protocol::kMaxCapacity},
                                       {"publish", Mode::publish, protocol::kMaxCapacity},
                                       {"sharing", Mode::publish, 1}}};

/// A world that runs one way, and its steps.
struct Runner {
  Runner(const Way& way, WorldOptions world, const std::vector<LayerWeights>& weights, const Inputs& inputs,
         int steps, Progress& progress)
      : driver(with_policy(std::move(world), way), weights, inputs, way.mode, way.mode),
        contestant(driver, Judge(weights, inputs, way.mode, steps), progress) {}

  StepDriver driver;
  Contestant<StepDriver> contestant;
  std::vector<double> step_us;  // of all steps that count

 private:
  static WorldOptions with_policy(WorldOptions world, const Way& way) {
    auto policy = std::make_shared<Policy>(Policy::of(Engine::cpu));
    policy->share_from = way.share_from;
    world.policy = std::move(policy);
    return world;
  }
};

/// All ways in turn, round by round, each round beginning with another one. Empty where an answer was wrong, which is printed.
std::optional<ModeTimes> measure(const TuneOptions& options, const Configuration& one,
                                 const std::vector<LayerWeights>& weights, Progress& progress) {
  const Inputs inputs = Inputs::synthetic(one.input, static_cast<int>(weights.size()), progress);
  const int steps = kWarmUpSteps + options.rounds;
  std::vector<std::unique_ptr<Runner>> runners;
  runners.reserve(kWays.size());
  for (const Way& way : kWays)
    runners.push_back(std::make_unique<Runner>(way, options.run.session.world_options(""), weights, inputs,
                                               steps, progress));
  progress.begin(fmt::format("T={} B={}", one.input.shape.ranks, one.input.batch),
                 static_cast<std::uint64_t>(steps) * kWays.size());
  for (int step = 0; step < steps; ++step)
    for (std::size_t i = 0; i < kWays.size(); ++i) {
      Runner& runner = *runners[(i + static_cast<std::size_t>(step)) % kWays.size()];
      const double us = runner.contestant.step();
      if (step >= kWarmUpSteps) runner.step_us.push_back(us);
    }
  progress.end();
  for (std::size_t i = 0; i < kWays.size(); ++i)
    if (const Checks& checks = runners[i]->contestant.checks(); !checks.passed()) {
      fmt::print("FAIL {}, T={}, B={}: {}\n", kWays[i].name, one.input.shape.ranks, one.input.batch,
                 checks.first_mismatch);
      return std::nullopt;
    }
  const auto layer_us = [&](std::size_t way) {
    return bench::median(runners[way]->step_us) / static_cast<double>(weights.size());
  };
  return ModeTimes{one.input.shape.ranks, one.input.batch, layer_us(0), layer_us(1), layer_us(2)};
}

void print_times(const std::vector<ModeTimes>& times, const Policy& policy) {
  std::vector<std::vector<std::string>> rows;
  rows.reserve(times.size());
  for (const ModeTimes& one : times) {
    const bool is_front = one.batch <= policy.front_limit(one.ranks);
    rows.push_back({fmt::format("{}", one.ranks), fmt::format("{}", one.batch),
                    fmt::format("{:.1f}", one.front_us), fmt::format("{:.1f}", one.publish_us),
                    fmt::format("{:.1f}", one.sharing_us),
                    is_front                         ? "front"
                    : one.batch >= policy.share_from ? "sharing"
                                                     : "publish"});
  }
  const std::vector<Column> columns = {{"T", 0},          {"B", 0},          {"front us", 0},
                                       {"publish us", 0}, {"sharing us", 0}, {"chosen", 0, Align::left}};
  fmt::print("{}\n", table_text(columns, rows));
}

}  // namespace

int tune_command(const TuneOptions& given) {
  TuneOptions options = given;
  RunOptions& run = options.run;
  if (run.session.engine == Engine::cuda)
    base::bad_argument("--engine", "cuda",
                       "cpu: the CUDA engine's table is measured by its program of GPU tests");
  if (run.call.form == Form::published)
    base::bad_argument("--form", "published", "rows, permuted or partial, which all of the modes take");
  run.session.engine = Engine::cpu;
  run.session.check_supported();
  if (!run.call.batches) run.call.batches = {1, 2, 4, 8, 16, 32};
  const RunSetup setup = make_setup(run);
  check_memory(setup, this_machine().available_bytes);
  base::AtomicFile out(options.out_file);  // a table that is there stays until the new one is measured

  Progress progress(run.session.quiet);
  const std::vector<LayerWeights> weights =
      synthetic_weights(run.session.seed, setup.layers, setup.hidden, setup.latent, progress);
  std::vector<ModeTimes> times;
  times.reserve(setup.configurations.size());
  for (const Configuration& one : setup.configurations) {
    const auto measured = measure(options, one, weights, progress);
    if (!measured) return kCheckFailed;
    times.push_back(*measured);
  }
  const Policy built_in = Policy::of(Engine::cpu), chosen = choose_policy(times, built_in);
  const std::string text = policy_text(chosen);
  out.write_at(0, std::as_bytes(std::span(text)));
  out.commit();
  print_times(times, chosen);
  fmt::print(
      "Median of {} steps a layer, the three in turn. Time lost against the fastest of them, in the mean: "
      "{:.1f} % with "
      "this table, {:.1f} % with the built-in one.\nIt is in {}, for --policy and "
      "WorldOptions::policy_file.\n",
      options.rounds, 100 * loss_of(chosen, times), 100 * loss_of(built_in, times), options.out_file);
  return kAllPassed;
}

}  // namespace moetail::cli
