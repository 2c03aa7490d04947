// SPDX-License-Identifier: Apache-2.0
// Rows of the CUDA engine: one rank with its peers replayed, all layers in one graph, replay by replay in turn with the unfused pipeline's
// graph over the same weights.
#include <fmt/format.h>

#include <algorithm>

#include "bench/cuda/gpu_ceilings.hpp"
#include "bench/cuda/unfused.hpp"
#include "bench/interleave.hpp"
#include "bench/statistics.hpp"
#include "cli/bencher.hpp"
#include "cli/replay_cost.hpp"
#include "cli/replay_rank.hpp"
#include "verify/oracle.hpp"

namespace moetail::cli {
namespace {

constexpr int kWarmUpReplays = 3;
// With --phases: layers enough for a median.
constexpr int kTracedReplays = 4;
// Half the distance of bf16 numbers, relative.
constexpr double kProductRounding = 0x1p-9;

/// Judges what the pipeline leaves, rank 0's columns of a group of one: it has no other ranks' part.
class UnfusedJudge {
 public:
  UnfusedJudge(std::span<const LayerWeights> weights, const Inputs& inputs) : weights_(weights) {
    const InputSpec& spec = inputs.spec();
    shape_ = spec.shape;
    shape_.hidden = spec.shape.shard();
    shape_.ranks = 1;
    batch_ = spec.batch;
    input_ = inputs.ranks(0).front();
    shared_ = columns_of(input_.shared, spec.shape.hidden);
    input_.shared = shared_.data();
    if (input_.residual != nullptr) {
      residual_ = columns_of(input_.residual, spec.shape.hidden);
      input_.residual = residual_.data();
    }
    checks_.rows_total = weights.size() * static_cast<std::uint64_t>(batch_);
  }

  /// `rows`: [B, H/T].
  void check_layer(std::size_t position, std::span<const Bf16> rows) {
    const auto [first, count] = judged_tokens(position, batch_);
    const std::vector<verify::RankInput> ranks = {from_token(input_, shape_, first, count)};
    const LayerWeights& layer = weights_[position];
    const verify::Problem problem{shape_, count, false, ranks, layer.up_proj.data(), layer.norm.data()};
    const std::size_t columns = static_cast<std::size_t>(shape_.hidden);
    // The contract's bound knows no rounding between product and add, and this pipeline has one.
    const verify::RowReport report = verify::check_rows(
        verify::expect(problem),
        rows.subspan(static_cast<std::size_t>(first) * columns, static_cast<std::size_t>(count) * columns), 0,
        kProductRounding);
    note_report(checks_, report, 0, layer.layer, first);
  }
  void check_repeat(std::span<const Bf16> rows, std::span<const Bf16> earlier) {
    if (std::ranges::equal(rows, earlier)) return;
    checks_.repeat_equal = false;
    checks_.note_mismatch("the last layer's rows after all replays are not those of its first run");
  }
  const Checks& checks() const { return checks_; }

 private:
  std::vector<Bf16> columns_of(const Bf16* rows, int width) const {
    std::vector<Bf16> part;
    for (int token = 0; token < batch_; ++token) {
      const Bf16* const from = rows + static_cast<std::ptrdiff_t>(token) * width;
      part.insert(part.end(), from, from + shape_.hidden);
    }
    return part;
  }

  std::span<const LayerWeights> weights_;
  Shape shape_;
  int batch_ = 0;
  verify::RankInput input_;
  std::vector<Bf16> shared_, residual_;
  Checks checks_;
};

/// The pipeline of one configuration with its checks.
struct Unfused {
  Unfused(const bench::Gpu& gpu, const bench::UnfusedSpec& spec, std::span<const LayerWeights> weights,
          const Inputs& inputs)
      : tail(gpu, spec), judge(weights, inputs) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      last = tail.run_layer(static_cast<int>(i));
      judge.check_layer(i, last);
    }
  }

  bench::UnfusedTail tail;
  UnfusedJudge judge;
  std::vector<Bf16> last;
};

/// What all rows of one input have in common: it is made, and the pipeline timed into shape, once.
struct GpuCase {
  GpuCase(const bench::Gpu& gpu, const InputSpec& spec, int num_layers, int row_copies, Progress& progress)
      : inputs(Inputs::synthetic(spec, num_layers, progress)), on_gpu(gpu, inputs, row_copies) {}

  Inputs inputs;
  GpuInputs on_gpu;
  std::unique_ptr<Unfused> theirs;  ///< null for the reason `absence`
  std::string absence;
};

class GpuBencher : public Bencher {
 public:
  GpuBencher(const BenchOptions& options, const RunSetup& setup, Progress& progress)
      : options_(options),
        progress_(progress),
        world_options_(options.session.world_options(options.call.policy_file)),
        weights_(replayed_shards(setup, options.session.seed, progress)),
        on_gpu_(gpu_, weights_) {
    world_options_.cuda_stream = gpu_.native_stream();
    warm_up(setup);
    progress_.begin("ceilings of the GPU", 1);
    const std::uint64_t bytes = weights_.size() * weights_.front().up_proj.span().size_bytes();
    found_ = bench::measure_gpu_ceilings(gpu_, bytes, static_cast<int>(weights_.size()));
    progress_.end();
  }

  Ceilings ceilings() const override {
    Ceilings ceilings;
    ceilings.bytes_per_second = found_.bytes_per_second();
    ceilings.target = gpu_.facts().arch();
    return ceilings;
  }

  void describe(nlohmann::json& report) const override {
    report["machine"]["gpu"] = gpu_text();
    report["gpu_ceilings"] = {{"copy_bytes_per_second", found_.copy_bytes_per_second},
                              {"read_bytes_per_second", found_.read_bytes_per_second},
                              {"bytes", found_.bytes},
                              {"launch_us", found_.launch_us},
                              {"dependent_launch_us", found_.dependent_launch_us},
                              {"publish_to_poll_us", found_.publish_us},
                              {"cluster_exchange_us", found_.exchange_us},
                              {"cluster", found_.cluster}};
    report["cold_rows"] = options_.cold_rows;
    report["take"] = options_.take;
  }

  BenchRow run(const Configuration& one) override {
    BenchRow row;
    row.engine = Engine::cuda;
    row.other.name = "cuBLASLt";
    row.result.configuration = one;
    row.result.num_layers = static_cast<int>(weights_.size());
    row.ceilings = ceilings();
    const ReplayCost cost = replay_cost(one, options_.take);
    row.rank_bytes = cost.bytes();
    row.result.floor = replay_floor(cost, found_);
    const GpuCase& common = case_of(one);
    Judge judge(weights_, common.inputs, one.plan.mode, 1);
    try {
      time_row(row, common, judge);
    } catch (const Error& error) {
      // Of this configuration: a kernel beyond its budget, a fault. What is wrong with the device shows in the rows that follow.
      judge.note_failure(error.what());
    }
    row.result.checks = judge.checks();
    return row;
  }

  std::string method(const std::vector<BenchRow>& rows) const override {
    return fmt::format(
        "{}: rank 0 of T, its peers' mailboxes filled beforehand; {} layers with weights of their own in one "
        "graph, {}, {}; {} "
        "rounds of "
        "one replay of ours, cuBLASLt's pipeline and ours again. A time is a replay's over its layers, all "
        "launches from expert rows "
        "to the {}. put: what every rank gets whole is one store, or a store a rank. cuBLASLt's pipeline "
        "communicates "
        "with nobody.\n{}\n",
        gpu_text(), rows.front().result.num_layers,
        options_.cold_rows ? "expert rows out of memory" : "expert rows in L2",
        options_.take ? "a take behind each tail" : "nobody consumes", options_.rounds,
        options_.take ? "rows that were taken" : "output row in the mailbox", replay_floor_text(found_));
  }

 private:
  std::string gpu_text() const {
    return fmt::format("{}, {}, {} SMs", gpu_.facts().name, gpu_.facts().arch(), gpu_.facts().num_sms);
  }

  /// Makes every configuration's kernels. What cannot be made is its row's to say.
  void warm_up(const RunSetup& setup) {
    progress_.begin("kernels", setup.configurations.size());
    std::vector<WarmOrder> orders;
    for (const Configuration& one : setup.configurations) orders.push_back({&one, world_options_});
    warm_ = warm_side_by_side(orders);
    progress_.end();
  }

  bench::UnfusedSpec unfused_spec(const Configuration& one, const GpuInputs& inputs) const {
    bench::UnfusedSpec spec;
    spec.shape = one.input.shape;
    spec.batch = one.input.batch;
    spec.form = one.input.form;
    spec.weight_type = one.input.weights;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      const Routed& routed = inputs.routed(i);
      spec.shards.push_back(on_gpu_.up_proj(i));
      spec.norms.push_back(on_gpu_.norm(i));
      spec.rows.push_back(one.input.form == Form::partial ? routed.partial.data() : routed.rows.data());
      spec.weights = one.input.weights == WeightType::fp32
                         ? static_cast<const void*>(routed.weights_fp32.data())
                         : routed.weights_bf16.data();
    }
    spec.shared = inputs.shared().data();
    spec.residual = inputs.residual().empty() ? nullptr : inputs.residual().data();
    return spec;
  }

  /// Rows of one input follow each other: only the last case is kept.
  const GpuCase& case_of(const Configuration& one) {
    if (case_ && case_ranks_ == one.input.shape.ranks && case_->inputs.spec().batch == one.input.batch)
      return *case_;
    const int layers = static_cast<int>(weights_.size());
    case_.reset();
    case_ = std::make_unique<GpuCase>(gpu_, one.input, layers,
                                      options_.cold_rows ? layers : GpuInputs::warm_copies(gpu_, one.input),
                                      progress_);
    case_ranks_ = one.input.shape.ranks;
    try {
      case_->theirs =
          std::make_unique<Unfused>(gpu_, unfused_spec(one, case_->on_gpu), weights_, case_->inputs);
    } catch (const Error& error) {
      // Whatever else is wrong with the library costs the ratio, not our times. A fault is the device's.
      if (error.code() == Code::fault) throw;
      case_->absence = error.what();
    }
    return *case_;
  }

  void time_row(BenchRow& row, const GpuCase& common, Judge& judge) {
    const Configuration& one = row.result.configuration;
    const int layers = row.result.num_layers;
    Unfused* const theirs = common.theirs.get();
    row.other.absence = common.absence;
    if (theirs != nullptr) {
      row.other.description = theirs->tail.description();
      row.other.checks = theirs->judge.checks();
    }
    ReplayRank ours(gpu_, warm_[next_++].take(), one, on_gpu_, weights_, common.inputs, common.on_gpu,
                    options_.take);
    const std::vector<Bf16> rows = ours.run_each();
    judge_first_run(judge, rows, layers, one.input.batch);
    const bench::Block our_block = [&] { return ours.replay(); };
    const bench::Block their_block = [&] { return theirs->tail.replay(); };
    double busy_us = 0;
    for (int i = 0; i < kWarmUpReplays || busy_us < kClockUs; ++i)
      busy_us += our_block() + (theirs != nullptr ? their_block() : 0) + 1;
    progress_.begin(fmt::format("{} rounds, {}", options_.rounds, configuration_text(one)), 1);
    // Nothing of a GPU's spins between replays, and a pause would let it doze.
    row.rounds = bench::interleave(options_.rounds, our_block,
                                   theirs != nullptr ? their_block : bench::Block(), bench::no_pause);
    progress_.end();
    row.result.steps = 2 * options_.rounds;
    for (const auto* steps : {&row.rounds.first_us, &row.rounds.second_us})
      for (const double us : *steps) row.layer_us.push_back(us / layers);
    for (const double us : row.rounds.theirs_us) row.other.layer_us.push_back(us / layers);
    row.result.timing = timing_of(row.layer_us);
    const std::vector<Bf16> last = ours.last_rows();
    judge.compare_with_earlier(last, std::span(rows).last(last.size()), row.result.steps, layers - 1,
                               "after all replays from the first run with the same inputs");
    if (options_.phases) {
      try {
        trace_phases(row, common, judge, rows);
      } catch (const Error& error) {
        // Traced kernels need some registers more: where those are not there, the row's times stand.
        if (error.code() == Code::fault) throw;
        row.phases_absence = error.what();
      }
    }
    if (theirs == nullptr) return;
    theirs->judge.check_repeat(theirs->tail.last_rows(), theirs->last);
    row.other.checks = theirs->judge.checks();
  }

  /// The row once more in kernels that are built for a trace. `rows`: what its own left, layer by layer.
  void trace_phases(BenchRow& row, const GpuCase& common, Judge& judge, const std::vector<Bf16>& rows) {
    const Configuration& one = row.result.configuration;
    WorldOptions world = world_options_;
    world.trace = std::make_shared<Trace>(0);
    ReplayRank traced(gpu_, WarmBox::make(one, world), one, on_gpu_, weights_, common.inputs, common.on_gpu,
                      options_.take);
    const std::vector<Bf16> first = traced.run_each();
    const std::vector<Bf16> last = trace_replays(traced, *world.trace, kTracedReplays, progress_);
    const int layers = row.result.num_layers;
    const std::size_t size = last.size();
    for (int i = 0; i < layers; ++i) {
      const auto of_layer = [&](const std::vector<Bf16>& all) {
        return std::span(all).subspan(static_cast<std::size_t>(i) * size, size);
      };
      judge.compare_with_earlier(of_layer(first), of_layer(rows), 0, i, "in traced kernels");
    }
    judge.compare_with_earlier(last, std::span(rows).last(size), kTracedReplays, layers - 1,
                               "in traced kernels after all replays");
    row.phases = phase_times(world.trace->spans());
  }

  const BenchOptions& options_;
  Progress& progress_;
  bench::Gpu gpu_;
  WorldOptions world_options_;
  std::vector<LayerWeights> weights_;
  GpuWeights on_gpu_;
  bench::GpuCeilings found_;
  std::vector<WarmResult> warm_;  // of the configurations, in order
  std::size_t next_ = 0;
  std::unique_ptr<GpuCase> case_;
  int case_ranks_ = 0;
};

}  // namespace

std::unique_ptr<Bencher> make_gpu_bencher(const BenchOptions& options, const RunSetup& setup,
                                          Progress& progress) {
  return std::make_unique<GpuBencher>(options, setup, progress);
}

}  // namespace moetail::cli
