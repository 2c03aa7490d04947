// SPDX-License-Identifier: Apache-2.0
// The ways of a call on a GPU, and then what the fastest way's tail may be asked for: rank 0 with its peers replayed, all layers in one graph, the
// variants replay by replay in turn.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "bench/cuda/tail_knobs.hpp"
#include "bench/statistics.hpp"
#include "cli/reference_rows.hpp"
#include "cli/replay_rank.hpp"
#include "cli/tuner.hpp"

namespace moetail::cli {
namespace {

struct Variant {
  std::string name;  // for people
  const Way* way;
  KernelChoice kernel;
};

/// One (T, B): its inputs, and the rows that every variant has to leave.
class GpuTrial {
 public:
  GpuTrial(const bench::Gpu& gpu, const WorldOptions& world, const GpuWeights& on_gpu,
           std::span<const LayerWeights> weights, const Configuration& one, int rounds, Progress& progress)
      : gpu_(gpu),
        world_(world),
        on_gpu_(on_gpu),
        weights_(weights),
        one_(one),
        rounds_(rounds),
        progress_(progress),
        inputs_(Inputs::synthetic(one.input, static_cast<int>(weights.size()), progress)),
        gpu_inputs_(gpu, inputs_, GpuInputs::warm_copies(gpu, one.input)),
        reference_(weights, inputs_) {}

  /// Times all of them side by side, in turn, round by round, each round beginning with another one. Prints why one has no time.
  VariantTimes measure(std::span<const Variant> variants) {
    std::vector<Entrant> entrants = enter(variants);
    const auto replay_all = [&](std::size_t first, bool counts) {
      double busy_us = 0;
      for (std::size_t i = 0; i < entrants.size(); ++i) {
        Entrant& entrant = entrants[(first + i) % entrants.size()];
        if (!entrant.rank) continue;
        const double us = entrant.rank->replay();
        if (counts) entrant.us.push_back(us);
        busy_us += us + 1;
      }
      return busy_us;
    };
    const bool is_empty =
        std::ranges::none_of(entrants, [](const Entrant& one) { return one.rank != nullptr; });
    for (double busy_us = 0; !is_empty && busy_us < kClockUs;) busy_us += replay_all(0, false);
    for (int round = 0; !is_empty && round < rounds_; ++round) {
      replay_all(static_cast<std::size_t>(round), true);
      progress_.advance();
    }
    progress_.end();
    VariantTimes times;
    for (std::size_t i = 0; i < entrants.size(); ++i) times.push_back(time_of(entrants[i], variants[i]));
    return times;
  }

  /// Whether every answer was right.
  bool passed() const { return passed_; }
  std::string place() const { return fmt::format("T={} B={}", one_.input.shape.ranks, one_.input.batch); }
  void say(const std::string& text) const {
    fmt::print("{} {}\n", place(), text);
    std::fflush(stdout);
  }

 private:
  struct Entrant {
    std::unique_ptr<Configuration> one;  // which the rank refers to
    std::unique_ptr<ReplayRank> rank;    // null: out
    std::vector<double> us;              // of a replay
  };

  std::vector<Entrant> enter(std::span<const Variant> variants) {
    std::vector<Entrant> entrants(variants.size());
    std::vector<WarmOrder> orders;
    for (std::size_t i = 0; i < variants.size(); ++i) {
      const Shape& shape = one_.input.shape;
      Policy policy = way_policy(*variants[i].way, Policy::of(Engine::cuda));
      if (const std::size_t bucket = bucket_index(one_.input.batch); bucket < kBatchBuckets.size())
        policy.cuda_kernels[Policy::rank_index(shape.ranks)][bucket] = variants[i].kernel;
      entrants[i].one =
          std::make_unique<Configuration>(make_configuration(one_.input, variants[i].way->mode, policy));
      entrants[i].one->put = one_.put;
      WorldOptions world = world_;
      world.policy = std::make_shared<Policy>(policy);
      orders.push_back({entrants[i].one.get(), std::move(world)});
    }
    std::vector<WarmResult> boxes = warm_side_by_side(orders);
    progress_.begin(fmt::format("{}, {} variants", place(), variants.size()),
                    static_cast<std::uint64_t>(rounds_));
    for (std::size_t i = 0; i < variants.size(); ++i) {
      try {
        entrants[i].rank = std::make_unique<ReplayRank>(gpu_, boxes[i].take(), *entrants[i].one, on_gpu_,
                                                        weights_, inputs_, gpu_inputs_, /*takes=*/false);
        check_first_run(entrants[i], variants[i]);
      } catch (const Error& error) {
        entrants[i].rank = nullptr;
        // Beyond what the device has, a setting is no variant; a fault is an answer that never came.
        if (error.code() == Code::fault)
          fail(variants[i], error.what());
        else
          say(fmt::format("left out: {}: {}", variants[i].name, error.what()));
      }
    }
    return entrants;
  }

  void check_first_run(Entrant& entrant, const Variant& variant) {
    const std::string why = reference_.mismatch(entrant.rank->run_each(), entrant.one->plan.mode);
    if (!why.empty()) drop(entrant, variant, why);
  }

  std::optional<double> time_of(Entrant& entrant, const Variant& variant) {
    if (!entrant.rank) return std::nullopt;
    std::string why;
    try {
      why = reference_.mismatch_of_last(entrant.rank->last_rows(), entrant.one->plan.mode);
    } catch (const Error& error) {
      if (error.code() != Code::fault) throw;
      why = error.what();
    }
    if (why.empty()) return bench::median(entrant.us) / static_cast<double>(weights_.size());
    drop(entrant, variant, why);
    return std::nullopt;
  }

  void drop(Entrant& entrant, const Variant& variant, const std::string& why) {
    entrant.rank = nullptr;
    fail(variant, why);
  }
  void fail(const Variant& variant, const std::string& why) {
    passed_ = false;
    fmt::print("FAIL {} {}: {}\n", place(), variant.name, why);
    std::fflush(stdout);
  }

  const bench::Gpu& gpu_;
  const WorldOptions& world_;
  const GpuWeights& on_gpu_;
  std::span<const LayerWeights> weights_;
  const Configuration& one_;
  int rounds_;
  Progress& progress_;
  Inputs inputs_;
  GpuInputs gpu_inputs_;
  ReferenceRows reference_;
  bool passed_ = true;
};

/// "front 5.14, publish 8.04 us": what was measured side by side.
std::string times_text(std::span<const Variant> variants, const VariantTimes& us) {
  std::string text;
  for (std::size_t i = 0; i < variants.size(); ++i)
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", variants[i].name,
                        us[i] ? fmt::format("{:.2f}", *us[i]) : "-");
  return text + " us";
}

class GpuTuner : public Tuner {
 public:
  GpuTuner(const TuneOptions& options, const RunSetup& setup, Progress& progress)
      : options_(options),
        progress_(progress),
        world_options_(options.run.session.world_options("")),
        weights_(replayed_shards(setup, options.run.session.seed, progress)),
        on_gpu_(gpu_, weights_),
        knobs_(gpu_) {
    world_options_.cuda_stream = gpu_.native_stream();
  }

  std::optional<Tuned> tune(const Configuration& one) override {
    GpuTrial trial(gpu_, world_options_, on_gpu_, weights_, one, options_.rounds, progress_);
    std::vector<Variant> ways;
    ways.reserve(kWays.size());
    for (const Way& way : kWays) ways.push_back({way.name, &way, {}});
    const VariantTimes us = trial.measure(ways);
    passed_ = passed_ && trial.passed();
    if (!trial.passed()) return std::nullopt;
    trial.say(times_text(ways, us));
    const auto time_of = [&](std::size_t way) {
      return us[way].value_or(std::numeric_limits<double>::infinity());
    };
    const ModeTimes times{one.input.shape.ranks, one.input.batch, time_of(0), time_of(1), time_of(2)};
    Tuned tuned{times, times.fastest(), {}};
    if (!us[tuned.way])
      base::fail(Code::unsupported, "{}: no way of a call can be built on this GPU", trial.place());
    if (bucket_index(one.input.batch) < kBatchBuckets.size())
      tuned.kernel = search(trial, one, kWays[tuned.way]);
    passed_ = passed_ && trial.passed();
    return tuned;
  }
  bool passed() const override { return passed_; }

 private:
  FoundKernel search(GpuTrial& trial, const Configuration& one, const Way& way) {
    const bench::TailSpec spec{one.input.shape, one.input.batch, way.mode};
    KnobSearch search;
    search.settings = [&](bench::Knob knob, const KernelChoice& from) {
      bench::TailKnobs::Settings settings = knobs_.settings(spec, knob, from);
      for (const std::string& obstacle : settings.obstacles) trial.say("left out: " + obstacle);
      return std::move(settings.choices);
    };
    search.measure = [&](const char* what, std::span<const KernelChoice> choices) {
      std::vector<Variant> variants;
      for (const KernelChoice& choice : choices) variants.push_back({choice_text(choice), &way, choice});
      VariantTimes us = trial.measure(variants);
      trial.say(fmt::format("{}, {}: {} -> {}", way.name, what, times_text(variants, us),
                            variants[fastest(us)].name));
      return us;
    };
    return search_knobs(search, options_.knobs);
  }

  const TuneOptions& options_;
  Progress& progress_;
  bench::Gpu gpu_;
  WorldOptions world_options_;
  std::vector<LayerWeights> weights_;
  GpuWeights on_gpu_;
  bench::TailKnobs knobs_;
  bool passed_ = true;
};

}  // namespace

std::unique_ptr<Tuner> make_gpu_tuner(const TuneOptions& options, const RunSetup& setup, Progress& progress) {
  return std::make_unique<GpuTuner>(options, setup, progress);
}

}  // namespace moetail::cli
