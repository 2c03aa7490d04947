// SPDX-License-Identifier: Apache-2.0
// What each stage of a tail costs: kernels in which it is left out, done twice, or in which it is the last that is not left out, replay by
// replay in turn with the whole kernel (kernels/ablation.hpp; docs/performance.md says how to read it). Mailboxes stay filled, so that nobody
// waits in vain; "as it is" is the kernel with its own mailboxes re-armed. The outputs of the others are nobody's.
#include "kernels/stage.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "bench/statistics.hpp"
#include "tests/gpu/bench_words.hpp"
#include "tests/gpu/layers.hpp"

namespace moetail::gpu {
namespace {

using kernels::Stage;
using kernels::stage_bit;

constexpr int kWarmUp = 3, kRounds = 20;
// Student's t, 19 degrees of freedom, two-sided 95 %.
constexpr double kStudent = 2.093;
constexpr const char* kKept = "MOETAIL_KEEPS_MAILBOXES=1";

struct Variant {
  std::string name;
  std::vector<std::string> defines;
  bool keeps = true;
  bool publishes = true;
  std::optional<cuda::GraphExec> graph = {};
  std::vector<double> us = {};

  Call of(Call call) const {
    call.publishes = publishes;
    return call;
  }
};

/// The stages that a kernel of this call has, in the order in which a launch comes by them; those of the waits apart.
std::vector<Stage> stages_of(const Call& call) {
  std::vector<Stage> stages = {Stage::weights, Stage::epoch, Stage::rows, Stage::publication, Stage::push};
  if (call.mode == Mode::twoshot || call.shares_reduced) stages.push_back(Stage::sums);
  for (const Stage stage : {Stage::rearm, Stage::header, Stage::polls, Stage::shared_polls, Stage::product,
                            Stage::exchange, Stage::output})
    stages.push_back(stage);
  return stages;
}

std::string bits(const char* macro, unsigned value) {
  return fmt::format("MOETAIL_{}={}", macro, value);
}

std::vector<Variant> variants_of(const Call& call) {
  const auto stages = stages_of(call);
  const auto name = [](Stage stage) { return kernels::kStageNames[static_cast<int>(stage)]; };
  std::vector<Variant> variants;
  variants.push_back({"as it is", {}, false});
  variants.push_back({"mailboxes kept", {kKept}});
  if (call.mode == Mode::publish || (call.mode == Mode::twoshot && !call.one_launch))
    variants.push_back({"push and wave alone", {kKept}, true, false});
  for (const Stage stage : stages)
    variants.push_back({fmt::format("without {}", name(stage)), {kKept, bits("LEFT_OUT", stage_bit(stage))}});
  for (const Stage stage : stages)
    if (stage != Stage::epoch)
      variants.push_back({fmt::format("twice {}", name(stage)), {kKept, bits("TWICE", stage_bit(stage))}});
  const unsigned waits = stage_bit(Stage::deadlines), faults = stage_bit(Stage::faults),
                 epoch = stage_bit(Stage::epoch);
  variants.push_back({"without deadlines", {kKept, bits("LEFT_OUT", waits)}});
  variants.push_back({"without fault records", {kKept, bits("LEFT_OUT", faults)}});
  variants.push_back(
      {"without epoch, deadlines and fault records", {kKept, bits("LEFT_OUT", epoch | waits | faults)}});
  variants.push_back({"without dependency wait", {kKept, "MOETAIL_WITHOUT_DEPENDENCY_WAIT=1"}});
  unsigned out = 0;
  for (const Stage stage : stages) out |= stage_bit(stage);
  variants.push_back({"nothing but launches", {kKept, bits("LEFT_OUT", out)}});
  for (const Stage stage : stages) {
    out &= ~stage_bit(stage);
    if (out == 0) break;
    variants.push_back({fmt::format("up to {}", name(stage)), {kKept, bits("LEFT_OUT", out)}});
  }
  return variants;
}

/// Mean of the differences from `base`, round by round, and half the width of its 95 % interval.
std::pair<double, double> difference(const std::vector<double>& us, const std::vector<double>& base) {
  const double n = static_cast<double>(us.size());
  double mean = 0, squares = 0;
  for (std::size_t i = 0; i < us.size(); ++i) mean += (us[i] - base[i]) / n;
  for (std::size_t i = 0; i < us.size(); ++i) squares += std::pow(us[i] - base[i] - mean, 2);
  return {mean, kStudent * std::sqrt(squares / (n - 1) / n)};
}

void measure(const Gpu& gpu, const Shape& shape, const Call& call, int row_copies) {
  Rig plain(gpu, shape, World::replay), kept(gpu, shape, World::replay);
  const auto inputs = plain.upload(call);
  plain.fill_peers(call, inputs);
  plain.check(call, inputs);
  const Layers layers(gpu, plain, call, inputs, row_copies);
  auto variants = variants_of(call);
  std::vector<cuda::KernelRequest> requests;
  for (const auto& variant : variants) {
    kept.defines = variant.defines;
    for (auto& request : kept.kernels_of(variant.of(call))) requests.push_back(std::move(request));
  }
  gpu.warm_up(requests);
  kept.fill_peers(call, inputs, true);
  for (auto& variant : variants) {
    Rig& rig = variant.keeps ? kept : plain;
    rig.defines = variant.defines;
    variant.graph.emplace(layers.capture(rig, variant.of(call), inputs));
    layers.replay_us(*variant.graph);
    if (!rig.boxes().front().fault()) continue;
    fmt::print("  {}: a wait ended in a fault: no time\n", variant.name);
    variant.graph.reset();
    rig.arm_all();
    rig.fill_peers(call, inputs, variant.keeps);
  }
  std::erase_if(variants, [](const Variant& variant) { return !variant.graph; });
  for (int round = -kWarmUp; round < kRounds; ++round)
    for (auto& variant : variants) {
      const double us = layers.replay_us(*variant.graph);
      if (round >= 0) variant.us.push_back(us);
    }
  for (const Rig* rig : {&plain, &kept}) rig->require_no_fault();
  const auto base = std::find_if(variants.begin(), variants.end(),
                                 [](const Variant& variant) { return variant.name == "mailboxes kept"; });
  require(base != variants.end(), "the whole kernel faulted");
  for (const auto& variant : variants) {
    const auto [mean, half] = difference(variant.us, base->us);
    fmt::print("  {:42} {:7.3f}  {:+7.3f} +-{:.3f}\n", variant.name, bench::median(variant.us), mean, half);
  }
}

}  // namespace

bool run_ablation(const Gpu& gpu, const std::vector<std::string>& words) {
  const BenchWords wanted(words);
  bool fine = true;
  fmt::print(
      "replay, {} layers in a graph, us a layer: median of {}, mean difference from the whole kernel "
      "with mailboxes kept (95 % interval)\n",
      Layers::kLayers, kRounds);
  for (const auto& [ranks, batch] : wanted.configurations()) {
    Shape shape;
    shape.ranks = ranks;
    const Call call = wanted.call(batch);
    fmt::print("T {} B {} {}:\n", ranks, batch, protocol::mode_name(call.mode));
    try {
      measure(gpu, shape, call, wanted.row_copies(gpu, call, shape));
    } catch (const std::exception& error) {
      fine = false;
      fmt::print("  no times: {}\n", error.what());
    }
    std::fflush(stdout);
  }
  return fine;
}

}  // namespace moetail::gpu
