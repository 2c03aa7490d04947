// SPDX-License-Identifier: Apache-2.0
// The search for a tail's fastest kernel, apart from how a kernel is timed: one knob after the other, from the plan's own choice on.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "bench/cuda/tail_knobs.hpp"

namespace moetail::cli {

/// By how much a setting has to be faster than the best before it: beyond what two runs of one kernel differ by.
inline constexpr double kLeastGain = 0.015;

/// Microseconds a layer, measured side by side; empty where a variant has no time because it could not be built, or was wrong.
using VariantTimes = std::vector<std::optional<double>>;

/// The place of the fastest, if that is faster than the first by `least_gain` at least; else the first's, 0, which also stays where it has no
/// time itself: there is nothing to compare with.
std::size_t fastest(const VariantTimes& us, double least_gain = kLeastGain);

struct KnobSearch {
  /// Settings of a knob beside `from`.
  std::function<std::vector<KernelChoice>(bench::Knob knob, const KernelChoice& from)> settings;
  /// Times all of them side by side; the first is the best so far. `what`: the knob's name, or what else is compared.
  std::function<VariantTimes(const char* what, std::span<const KernelChoice> choices)> measure;
};

struct FoundKernel {
  KernelChoice choice;  ///< the plan's own where nothing was faster
  // Of the last comparison, side by side; empty where there was none.
  std::optional<double> own_us, us;
};

/// Tries `knobs` in order, each from the best so far, which stays unless another setting is faster by kLeastGain; at the end the best has to be
/// faster than the plan's own once more, by as much, side by side.
FoundKernel search_knobs(const KnobSearch& search, std::span<const bench::Knob> knobs);

}  // namespace moetail::cli
