// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda/tail_knobs.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "base/error.hpp"
#include "engine/cuda/planned.hpp"

namespace moetail::bench {
namespace {

// Deeper pipelines than these differ by nothing that a step notices.
constexpr std::array<int, 5> kDepths = {2, 3, 4, 6, 8};

KernelChoice with(KernelChoice choice, Knob knob, int value) {
  switch (knob) {
    case Knob::trigger: choice.trigger = value; break;
    case Knob::warps: choice.warps = value; break;
    case Knob::tile: choice.tile = value; break;
    case Knob::row_block: choice.row_block = value; break;
    case Knob::stages: choice.stages = value; break;
  }
  return choice;
}

/// All that may be worth a try for a tail that is planned as `plan` now.
std::vector<int> values_of(Knob knob, const kernels::KernelPlan& plan, const TailSpec& spec) {
  switch (knob) {
    case Knob::trigger:
      // At entry, after the dependency wait, the publication (which a wave has not), the errands, the polls. Never and behind the product are too late
      // for any batch.
      return plan.kind == kernels::Kind::wave ? std::vector<int>{0, 6, 4, 1}
                                              : std::vector<int>{0, 6, 3, 4, 1};
    case Knob::warps: return {kWarpCounts.begin(), kWarpCounts.end()};
    case Knob::tile: return {kTiles.begin(), kTiles.end()};
    case Knob::row_block: {
      std::vector<int> rows;
      for (const int each : {8, 4, 2})
        if (std::ranges::count(kRowBlocks, each * plan.geometry.slices) > 0)
          rows.push_back(each * plan.geometry.slices);
      return rows;
    }
    case Knob::stages: {
      const int blocks = kernels::make_cut(spec.shape, plan.geometry).row_blocks;
      const int rounds = (blocks + plan.geometry.clusters - 1) / plan.geometry.clusters;
      std::vector<int> depths;
      for (const int depth : kDepths)
        if (depth <= rounds) depths.push_back(depth);
      return depths;
    }
  }
  return {};
}

}  // namespace

TailKnobs::TailKnobs(const Gpu& gpu) : device_(cuda::device_shape_of(gpu.context())) {}

kernels::KernelPlan TailKnobs::plan(const TailSpec& spec, const KernelChoice& choice) const {
  kernels::PlanRequest request;
  request.shape = spec.shape;
  request.batch = spec.batch;
  request.mode = spec.mode;
  request.kind = spec.mode == Mode::publish ? kernels::Kind::wave : kernels::Kind::front;
  request.choice = choice;
  return kernels::make_plan(request, device_);
}

TailKnobs::Settings TailKnobs::settings(const TailSpec& spec, Knob knob, const KernelChoice& from) const {
  const kernels::KernelPlan now = plan(spec, from);
  // Two plans are one kernel if they are compiled alike.
  std::set<std::vector<std::string>> kernels = {now.defines};
  Settings settings;
  for (const int value : values_of(knob, now, spec)) {
    const KernelChoice choice = with(from, knob, value);
    try {
      if (kernels.insert(plan(spec, choice).defines).second) settings.choices.push_back(choice);
    } catch (const Error& error) {
      settings.obstacles.push_back(fmt::format("{}: {}", choice_text(choice), error.what()));
    }
  }
  return settings;
}

}  // namespace moetail::bench
