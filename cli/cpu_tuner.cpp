// SPDX-License-Identifier: Apache-2.0
// The ways of a call on the CPU engine, step by step in turn.
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "bench/statistics.hpp"
#include "cli/contestant.hpp"
#include "cli/judge.hpp"
#include "cli/machine.hpp"
#include "cli/step_driver.hpp"
#include "cli/tuner.hpp"

namespace moetail::cli {
namespace {

/// A world that runs one way, and its steps.
struct WayRunner {
  WayRunner(const Way& way, WorldOptions world, const std::vector<LayerWeights>& weights,
            const Inputs& inputs, int steps, Progress& progress)
      : driver(with_policy(std::move(world), way), weights, inputs, way.mode, way.mode),
        contestant(driver, Judge(weights, inputs, way.mode, steps), progress) {}

  StepDriver driver;
  Contestant<StepDriver> contestant;
  std::vector<double> step_us;  // of all steps that count

 private:
  static WorldOptions with_policy(WorldOptions world, const Way& way) {
    world.policy = std::make_shared<Policy>(way_policy(way, Policy::of(Engine::cpu)));
    return world;
  }
};

class CpuTuner : public Tuner {
 public:
  CpuTuner(const TuneOptions& options, const RunSetup& setup, Progress& progress)
      : options_(options), progress_(progress) {
    check_memory(setup, this_machine().available_bytes);
    weights_ =
        synthetic_weights(options.run.session.seed, setup.layers, setup.hidden, setup.latent, progress);
  }

  /// All ways in turn, round by round, each round beginning with another one.
  std::optional<Tuned> tune(const Configuration& one) override {
    const Inputs inputs = Inputs::synthetic(one.input, static_cast<int>(weights_.size()), progress_);
    const int steps = kWarmUpSteps + options_.rounds;
    std::vector<std::unique_ptr<WayRunner>> runners;
    runners.reserve(kWays.size());
    for (const Way& way : kWays)
      runners.push_back(std::make_unique<WayRunner>(way, options_.run.session.world_options(""), weights_,
                                                    inputs, steps, progress_));
    progress_.begin(fmt::format("T={} B={}", one.input.shape.ranks, one.input.batch),
                    static_cast<std::uint64_t>(steps) * kWays.size());
    for (int step = 0; step < steps; ++step)
      for (std::size_t i = 0; i < kWays.size(); ++i) {
        WayRunner& runner = *runners[(i + static_cast<std::size_t>(step)) % kWays.size()];
        const double us = runner.contestant.step();
        if (step >= kWarmUpSteps) runner.step_us.push_back(us);
      }
    progress_.end();
    for (std::size_t i = 0; i < kWays.size(); ++i)
      if (const Checks& checks = runners[i]->contestant.checks(); !checks.passed()) {
        fmt::print("FAIL {}, T={}, B={}: {}\n", kWays[i].name, one.input.shape.ranks, one.input.batch,
                   checks.first_mismatch);
        passed_ = false;
        return std::nullopt;
      }
    const auto layer_us = [&](std::size_t way) {
      return bench::median(runners[way]->step_us) / static_cast<double>(weights_.size());
    };
    const ModeTimes times{one.input.shape.ranks, one.input.batch, layer_us(0), layer_us(1), layer_us(2)};
    return Tuned{times, times.fastest(), {}};
  }
  bool passed() const override { return passed_; }

 private:
  const TuneOptions& options_;
  Progress& progress_;
  std::vector<LayerWeights> weights_;
  bool passed_ = true;
};

}  // namespace

std::unique_ptr<Tuner> make_cpu_tuner(const TuneOptions& options, const RunSetup& setup, Progress& progress) {
  return std::make_unique<CpuTuner>(options, setup, progress);
}

}  // namespace moetail::cli
