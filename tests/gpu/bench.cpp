// SPDX-License-Identifier: Apache-2.0
// Timings of experiments on the kernels: with macros of their own (-DNAME=VALUE), and modes that the policy would not choose. What users get is
// timed by `moetail bench --engine cuda`.
#include <algorithm>

#include "bench/statistics.hpp"
#include "tests/gpu/bench_words.hpp"
#include "tests/gpu/layers.hpp"

namespace moetail::gpu {
namespace {

constexpr int kWarmUp = 3, kReplays = 20;

/// Of each replay, us a layer.
std::vector<double> time_call(const Gpu& gpu, const Shape& shape, const Call& call, int row_copies) {
  Rig rig(gpu, shape, World::replay);
  const auto inputs = rig.upload(call);
  rig.fill_peers(call, inputs);
  rig.check(call, inputs);
  const Layers layers(gpu, rig, call, inputs, row_copies);
  const auto graph = layers.capture(rig, call, inputs);
  std::vector<double> times;
  for (int i = -kWarmUp; i < kReplays; ++i) {
    const double us = layers.replay_us(graph);
    if (i >= 0) times.push_back(us);
  }
  const bool faulted = rig.boxes().front().fault().has_value();
  require(!faulted, "fault during the replay");
  rig.take(0, call.batch);
  rig.check(call, inputs);
  return times;
}

}  // namespace

bool run_bench(Gpu& gpu, const std::vector<std::string>& words) {
  gpu.extra_defines.clear();
  for (const auto& word : words)
    if (word.rfind("-D", 0) == 0) gpu.extra_defines.push_back(word.substr(2));
  const BenchWords wanted(words);
  bool fine = true;
  fmt::print("replay, us a layer (median of {}, least):\n", kReplays);
  for (const auto& [ranks, batch] : wanted.configurations()) {
    Shape shape;
    shape.ranks = ranks;
    const Call call = wanted.call(batch);
    try {
      const auto us = time_call(gpu, shape, call, wanted.row_copies(gpu, call, shape));
      fmt::print("T {:2} B {:3}: {:6.2f} ({:6.2f})\n", ranks, batch, bench::median(us), std::ranges::min(us));
    } catch (const std::exception& error) {
      fine = false;
      fmt::print("T {:2} B {:3}: no time, the check failed: {}\n", ranks, batch, error.what());
    }
    std::fflush(stdout);
  }
  return fine;
}

}  // namespace moetail::gpu
