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
#include "cli/exit_code.hpp"
#include "cli/judge.hpp"
#include "cli/setup.hpp"
#include "cli/step_driver.hpp"
#include "cli/table.hpp"
#include "cli/tune.hpp"

namespace moetail::cli {
namespace {

// Both input sets of every layer, so that nothing is touched for the first time while it is measured.
constexpr int kUnmeasuredSteps = 2;

/// One way to run a call: a mode, and whether publish shares.
struct Way {
  const char* name;
  Mode mode;
  int share_from;
};
constexpr std::array<Way, 3> kWays = {{{"front", Mode::front, protocol::kMaxCapacity},
                                       {"publish", Mode::publish, protocol::kMaxCapacity},
                                       {"sharing", Mode::publish, 1}}};

/// Steps of one way, timed and checked.
class WayDriver {
 public:
  WayDriver(const Way& way, const TuneOptions& options, const std::vector<LayerWeights>& weights,
            const Inputs& inputs, int steps)
      : driver_(world_of(way, options), weights, inputs, way.mode, way.mode),
        judge_(weights, inputs, way.mode, steps) {}

  void step(int number) {
    driver_.run_step(number);
    if (number >= kUnmeasuredSteps) step_us_.push_back(driver_.step_us());
    judge_.check_step(driver_, number);
  }
  double layer_us() const { return bench::median(step_us_) / driver_.num_layers(); }
  const Checks& checks() const { return judge_.checks(); }

 private:
  static WorldOptions world_of(const Way& way, const TuneOptions& options) {
    WorldOptions world = options.session.world_options("");
    auto policy = std::make_shared<Policy>(Policy::of(Engine::cpu));
    policy->share_from = way.share_from;
    world.policy = std::move(policy);
    return world;
  }

  StepDriver driver_;
  Judge judge_;
  std::vector<double> step_us_;
};

/// All ways in turn, round by round, each round beginning with another one. Empty where an answer was wrong, which is printed.
std::optional<ModeTimes> measure(const TuneOptions& options, const Configuration& one,
                                 const std::vector<LayerWeights>& weights, Progress& progress) {
  const Inputs inputs = Inputs::synthetic(one.input, static_cast<int>(weights.size()), progress);
  const int steps = kUnmeasuredSteps + options.rounds;
  std::vector<std::unique_ptr<WayDriver>> drivers;
  drivers.reserve(kWays.size());
  for (const Way& way : kWays)
    drivers.push_back(std::make_unique<WayDriver>(way, options, weights, inputs, steps));
  progress.begin(fmt::format("T={} B={}", one.input.shape.ranks, one.input.batch),
                 static_cast<std::uint64_t>(steps) * kWays.size());
  for (int step = 0; step < steps; ++step)
    for (std::size_t i = 0; i < kWays.size(); ++i) {
      drivers[(i + static_cast<std::size_t>(step)) % kWays.size()]->step(step);
      progress.advance();
    }
  progress.end();
  for (std::size_t i = 0; i < kWays.size(); ++i)
    if (const Checks& checks = drivers[i]->checks(); !checks.passed()) {
      fmt::print("FAIL {}, T={}, B={}: {}\n", kWays[i].name, one.input.shape.ranks, one.input.batch,
                 checks.first_mismatch);
      return std::nullopt;
    }
  return ModeTimes{one.input.shape.ranks, one.input.batch, drivers[0]->layer_us(), drivers[1]->layer_us(),
                   drivers[2]->layer_us()};
}

std::vector<Configuration> configurations_of(const TuneOptions& options) {
  CallOptions call = options.call;
  if (!call.batches) call.batches = {1, 2, 4, 8, 16, 32};
  return make_configurations(options.shape, call, options.session.seed, Engine::cpu);
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
  if (options.session.engine == Engine::cuda)
    base::bad_argument("--engine", "cuda",
                       "cpu: the CUDA engine's table is measured by its program of GPU tests");
  if (options.call.form == Form::published)
    base::bad_argument("--form", "published", "rows, permuted or partial, which all of the modes take");
  options.session.engine = Engine::cpu;
  options.session.check_supported();
  const std::vector<Configuration> configurations = configurations_of(options);
  base::AtomicFile out(options.out_file);  // a table that is there stays until the new one is measured

  Progress progress(options.session.quiet);
  const Shape& shape = configurations.front().input.shape;
  const int num_layers = synthetic_layer_count(options.layers);
  std::vector<int> layers(static_cast<std::size_t>(num_layers));
  for (int i = 0; i < num_layers; ++i) layers[static_cast<std::size_t>(i)] = i + 1;
  const std::vector<LayerWeights> weights =
      synthetic_weights(options.session.seed, layers, shape.hidden, shape.latent, progress);
  std::vector<ModeTimes> times;
  times.reserve(configurations.size());
  for (const Configuration& one : configurations) {
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
