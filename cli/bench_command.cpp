// SPDX-License-Identifier: Apache-2.0
// moetail bench: every configuration timed against its floor and, step by step in turn, against oneDNN.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <set>
#include <utility>

#include "bench/baseline.hpp"
#include "bench/statistics.hpp"
#include "cli/bench_row.hpp"
#include "cli/commands.hpp"
#include "cli/contestant.hpp"
#include "cli/exit_code.hpp"
#include "cli/format.hpp"
#include "cli/html_report.hpp"
#include "cli/json_report.hpp"
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

void print_end(const std::vector<BenchRow>& rows, const BenchOptions& options, const Machine& machine) {
  fmt::print("\n");
  std::set<std::string> absences, descriptions;
  for (const BenchRow& row : rows) {
    fmt::print("{}", bench_notes(row));
    if (row.other.ran())
      descriptions.insert(
          fmt::format("B={}: {}", row.result.configuration.input.batch, row.other.description));
    else
      absences.insert(row.other.absence);
  }
  fmt::print(
      "Times are of one layer with weights of its own, {} layers, {} rounds of one step of ours, oneDNN's "
      "and ours again.\n"
      "ratio: median over the rounds of our step times over oneDNN's, below 1 ours is faster. A/A: our "
      "second step over "
      "our first, median and half the distance of the quartiles.\n",
      rows.front().result.num_layers, options.rounds);
  for (const std::string& text : descriptions) fmt::print("oneDNN at {}\n", text);
  for (const std::string& text : absences) fmt::print("no ratio: {}\n", text);
  fmt::print("{}\n{}, {} cores\n", floor_range_text(rows), machine.cpu, machine.cores);
}

/// Created before the run, so that a path that cannot be written is refused at once. Closed where `path` is empty.
std::ofstream open_text(const char* flag, const std::string& path) {
  std::ofstream file;
  if (path.empty()) return file;
  file.open(path);
  if (!file) base::fail(Code::file, "{} = {}: cannot be written", flag, path);
  return file;
}

void check_written(const char* flag, const std::string& path, const std::ofstream& file) {
  if (file.is_open() && !file) base::fail(Code::file, "{} = {}: could not be written whole", flag, path);
}

RunOptions run_options(const BenchOptions& options) {
  RunOptions run;
  run.shape = options.shape;
  run.call = options.call;
  run.session = options.session;
  run.layers = options.layers;
  if (!run.call.batches) run.call.batches = {1, 2, 4, 8, 16};
  return run;
}

}  // namespace

int bench_command(const BenchOptions& options) {
  options.session.check_supported();
  const RunOptions run = run_options(options);
  const RunSetup setup = make_setup(run);
  const Machine machine = this_machine();
  check_memory(setup, machine.available_bytes);
  ReportFile report_file(options.session.json_file);
  std::ofstream csv = open_text("--csv", options.csv_file), html = open_text("--html", options.html_file);
  if (csv.is_open()) csv << csv_titles() << std::flush;

  Progress progress(options.session.quiet);
  Ceilings ceilings = find_ceilings();
  nlohmann::json report = report_head(options.session, machine, ceilings);
  report["model"] = model_json(run, setup);
  report["results"] = nlohmann::json::array();
  const std::vector<LayerWeights> weights =
      synthetic_weights(options.session.seed, setup.layers, setup.hidden, setup.latent, progress);

  if (!report_file.is_stdout()) fmt::print("{}\n\n{}\n", setup_text(setup), table_titles(bench_columns()));
  std::fflush(stdout);
  std::vector<BenchRow> rows;
  bool passed = true;
  for (const Configuration& one : setup.configurations) {
    rows.push_back(run_row(options, one, weights, progress));
    BenchRow& row = rows.back();
    const Ceilings after = ceilings.is_measured ? find_ceilings() : ceilings;
    row.ceilings = mean_of(std::exchange(ceilings, after), after);
    row.result.floor = floor_of(one.plan, row.ceilings);
    passed = passed && row.passed();
    report["results"].push_back(bench_json(row));
    if (csv.is_open()) csv << csv_line(row) << std::flush;
    if (!report_file.is_stdout()) fmt::print("{}\n", table_line(bench_columns(), bench_cells(row)));
    std::fflush(stdout);
  }
  if (!report_file.is_stdout()) print_end(rows, options, machine);
  report["verdict"] = passed ? "pass" : "fail";
  report_file.write(report);
  if (html.is_open()) html << html_report(report, rows) << std::flush;
  check_written("--csv", options.csv_file, csv);
  check_written("--html", options.html_file, html);
  return passed ? kAllPassed : kCheckFailed;
}

}  // namespace moetail::cli
