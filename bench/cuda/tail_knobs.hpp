// SPDX-License-Identifier: Apache-2.0
// What a tail's kernel may be asked for on this GPU, one thing at a time: the settings that a search for the fastest tries.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/cuda/gpu.hpp"
#include "bench/cuda/knob.hpp"
#include "kernels/plan.hpp"

namespace moetail::bench {

/// A tail, as far as its plan goes.
struct TailSpec {
  protocol::Shape shape;
  int batch = 1;
  Mode mode = Mode::front;  ///< front or publish
};

class TailKnobs {
 public:
  /// Asks the device what plans want to know of it.
  explicit TailKnobs(const Gpu& gpu);
  explicit TailKnobs(kernels::DeviceShape device) : device_(std::move(device)) {}

  struct Settings {
    std::vector<KernelChoice> choices;
    std::vector<std::string> obstacles;  ///< of what has no room here, with the reason
  };
  /// `from` with another setting of `knob`, each one that plans another kernel than `from` and than the others.
  Settings settings(const TailSpec& spec, Knob knob, const KernelChoice& from) const;

 private:
  kernels::KernelPlan plan(const TailSpec& spec, const KernelChoice& choice) const;

  kernels::DeviceShape device_;
};

}  // namespace moetail::bench
