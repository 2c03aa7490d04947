// SPDX-License-Identifier: Apache-2.0
// Rows of the CPU engine: every configuration timed against its floor and, step by step in turn, against oneDNN.
#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "bench/baseline.hpp"
#include "bench/statistics.hpp"
#include "cli/bencher.hpp"
#include "cli/contestant.hpp"
#include "cli/format.hpp"
#include "cli/machine.hpp"
#include "cli/step_driver.hpp"

namespace moetail::cli {
namespace {

/// The other program's decode steps, in the shape of StepDriver.
class BaselineDriver : public StepOutput {
 public:
  BaselineDriver(bench::Baseline& baseline, const Inputs& inputs, std::size_t num_layers)
      : baseline_(baseline), inputs_(inputs), layer_us_(num_layers) {}

  void run_step(int step) {
    const auto begin = Clock::now();
    auto layer_begin = begin;
    for (std::size_t i = 0; i < layer_us_.size(); ++i) {
      const int layer = static_cast<int>(i);
      baseline_.run_layer(layer, inputs_.set_of(layer, step));
      layer_us_[i] = us_between(layer_begin, Clock::now());
      layer_begin = Clock::now();
    }
    step_us_ = us_between(begin, layer_begin);
  }
  std::span<const double> layer_us() const { return layer_us_; }
  double step_us() const { return step_us_; }
  std::span<const Bf16> output(int position, int) const override { return baseline_.output(position); }

 private:
  using Clock = std::chrono::steady_clock;
  static double us_between(Clock::time_point begin, Clock::time_point end) {
    return std::chrono::duration<double, std::micro>(end - begin).count();
  }

  bench::Baseline& baseline_;
  const Inputs& inputs_;
  std::vector<double> layer_us_;
  double step_us_ = 0;
};

// The inputs as the baseline takes them: what was published is a partial to it.
std::vector<std::vector<verify::RankInput>> baseline_sets(const Inputs& inputs) {
  std::vector<std::vector<verify::RankInput>> sets;
  for (int set = 0; set < inputs.num_sets(); ++set) {
    const auto ranks = inputs.ranks(set);
    auto& copy = sets.emplace_back(ranks.begin(), ranks.end());
    if (inputs.spec().form != Form::published) continue;
    for (std::size_t rank = 0; rank < copy.size(); ++rank) {
      copy[rank].form = Form::partial;
      copy[rank].partial = inputs.published_partial(set, static_cast<int>(rank)).data();
    }
  }
  return sets;
}

/// What a baseline views, and the baseline itself where there is one.
struct Other {
  std::vector<bench::BaselineLayer> layers;
  std::vector<std::vector<verify::RankInput>> sets;
  std::unique_ptr<bench::Baseline> baseline;
};

// Null with the reason in `result` where oneDNN cannot take part.
std::unique_ptr<Other> make_other(const InputSpec& input, const std::vector<LayerWeights>& weights,
                                  const Inputs& inputs, OtherResult& result) {
  auto other = std::make_unique<Other>();
  for (const LayerWeights& layer : weights)
    other->layers.push_back({layer.up_proj.data(), layer.norm.data()});
  other->sets = baseline_sets(inputs);
  const Machine machine = this_machine();
  const bench::BaselineSpec spec{input.shape, input.batch, machine.cores, other->layers, other->sets};
  try {
    const std::uint64_t bytes = bench::onednn_baseline_bytes(spec);
    if (machine.available_bytes != 0 && bytes > machine.available_bytes)
      base::fail(Code::unsupported, "oneDNN's copies need {} of memory, {} are available", bytes_text(bytes),
                 bytes_text(machine.available_bytes));
    other->baseline = bench::make_onednn_baseline(spec);
  } catch (const Error& error) {
    if (error.code() != Code::unsupported) throw;
    result.absence = error.what();
    return nullptr;
  }
  result.description = other->baseline->description();
  return other;
}

BenchRow run_row(const BenchOptions& options, const Configuration& one,
                 const std::vector<LayerWeights>& weights, Progress& progress) {
  const int alone_steps = options.alone ? options.rounds : 0;
  const int other_steps = kWarmUpSteps + options.rounds + alone_steps;
  const int our_steps = other_steps + options.rounds;
  BenchRow row;
  row.result.configuration = one;
  row.result.num_layers = static_cast<int>(weights.size());
  row.result.steps = our_steps;

  const Inputs inputs = Inputs::synthetic(one.input, row.result.num_layers, progress);
  StepDriver driver(options.session.world_options(options.call.policy_file), weights, inputs, one.mode,
                    one.plan.mode);
  Contestant ours(driver, Judge(weights, inputs, one.plan.mode, our_steps), progress);
  const std::unique_ptr<Other> other = make_other(one.input, weights, inputs, row.other);
  std::optional<BaselineDriver> other_driver;
  std::optional<Contestant<BaselineDriver>> theirs;
  if (other) {
    other_driver.emplace(*other->baseline, inputs, weights.size());
    // Its x is never rounded on the way, as in all modes but two-shot.
    theirs.emplace(*other_driver, Judge(weights, inputs, Mode::front, other_steps), progress);
  }

  progress.begin(
      fmt::format("{} rounds, {} T={} B={}", options.rounds, protocol::mode_name(one.plan.mode),
                  one.input.shape.ranks, one.input.batch),
      static_cast<std::uint64_t>(our_steps) + (theirs ? static_cast<std::uint64_t>(other_steps) : 0));
  for (int step = 0; step < kWarmUpSteps; ++step) {
    ours.step();
    if (theirs) theirs->step();
  }
  ours.take_samples();
  if (theirs) theirs->take_samples();
  const bench::LoadWatch watch;
  row.rounds = bench::interleave(options.rounds, ours.block(), theirs ? theirs->block() : bench::Block());
  row.load = watch.load();
  row.layer_us = ours.take_samples();
  row.result.timing = timing_of(row.layer_us);
  if (theirs) row.other.layer_us = theirs->take_samples();
  if (options.alone) {
    row.alone_us = bench::alone(options.rounds, ours.block());
    if (theirs) row.other.alone_us = bench::alone(options.rounds, theirs->block());
  }
  progress.end();
  row.result.checks = ours.checks();
  if (theirs) row.other.checks = theirs->checks();
  return row;
}

// A virtual machine's bandwidth may wander by a fifth within a minute: a row's ceilings are the mean of what was measured before
// it and after it.
Ceilings mean_of(const Ceilings& before, const Ceilings& after) {
  Ceilings mean = before;
  mean.bytes_per_second = 0.5 * (before.bytes_per_second + after.bytes_per_second);
  mean.flops_per_second = 0.5 * (before.flops_per_second + after.flops_per_second);
  return mean;
}

std::string floor_range_text(const std::vector<BenchRow>& rows) {
  std::vector<double> bandwidths, peaks;
  for (const BenchRow& row : rows) {
    bandwidths.push_back(row.ceilings.bytes_per_second / 1e9);
    peaks.push_back(row.ceilings.flops_per_second / 1e9);
  }
  const Ceilings& one = rows.front().ceilings;
  if (!one.is_measured) return floor_text(one);
  return fmt::format(
      "floor = max((weight + input + output bytes) / {:.1f} to {:.1f} GB/s, flops / {:.0f} to {:.0f} "
      "Gflop/s): "
      "measured before and after each row, for {} threads and {} arithmetic",
      bench::quantile(bandwidths, 0), bench::quantile(bandwidths, 1), bench::quantile(peaks, 0),
      bench::quantile(peaks, 1), one.threads, one.target);
}

class CpuBencher : public Bencher {
 public:
  CpuBencher(const BenchOptions& options, const RunSetup& setup, Progress& progress)
      : options_(options),
        progress_(progress),
        before_(find_ceilings()),
        first_(before_),
        weights_(
            synthetic_weights(options.session.seed, setup.layers, setup.hidden, setup.latent, progress)) {}

  Ceilings ceilings() const override { return first_; }
  void describe(nlohmann::json&) const override {}

  BenchRow run(const Configuration& one) override {
    BenchRow row = run_row(options_, one, weights_, progress_);
    const Ceilings after = before_.is_measured ? find_ceilings() : before_;
    row.ceilings = mean_of(std::exchange(before_, after), after);
    row.result.floor = floor_of(one.plan, row.ceilings);
    return row;
  }

  std::string method(const std::vector<BenchRow>& rows) const override {
    return fmt::format(
        "Times are of one layer with weights of its own, {} layers, {} rounds of one step of ours, oneDNN's "
        "and ours again.\n{}\n",
        rows.front().result.num_layers, options_.rounds, floor_range_text(rows));
  }

 private:
  const BenchOptions& options_;
  Progress& progress_;
  Ceilings before_;
  Ceilings first_;
  std::vector<LayerWeights> weights_;
};

}  // namespace

std::unique_ptr<Bencher> make_cpu_bencher(const BenchOptions& options, const RunSetup& setup,
                                          Progress& progress) {
  return std::make_unique<CpuBencher>(options, setup, progress);
}

}  // namespace moetail::cli
