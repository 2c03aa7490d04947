// SPDX-License-Identifier: Apache-2.0
// A decode step of one replayed rank for timings of experiments: many layers with weights of their own in one graph, launches chained by
// dependent launch, expert rows in L2.
#pragma once

#include "tests/gpu/rig.hpp"

namespace moetail::gpu {

class Layers {
 public:
  static constexpr int kLayers = 93;
  /// Copies of the expert rows that layers take in turns. Two: what lies between two uses of a copy, the weights of two layers, stays far below
  /// the L2, where an expert kernel has just written its rows. At 128 tokens only one copy does.
  static constexpr int kRowCopies = 2;

  Layers(const Gpu& gpu, const Rig& rig, const Call& call, const DeviceInputs& inputs,
         int row_copies = kRowCopies);
  /// All layers of a rig of the same shape, with its defines.
  cuda::GraphExec capture(Rig& rig, const Call& call, const DeviceInputs& inputs) const;
  /// Of one layer.
  double replay_us(const cuda::GraphExec& graph) const;

 private:
  const Gpu& gpu_;
  int row_copies_;
  std::size_t shard_bytes_, rows_bytes_;
  cuda::DeviceMemory weights_, rows_;
  cuda::Event begin_, end_;
};

}  // namespace moetail::gpu
