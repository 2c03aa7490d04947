// SPDX-License-Identifier: Apache-2.0
// What the benchmark compares with: another program's way through the same layers with the same inputs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "protocol/shape.hpp"
#include "verify/problem.hpp"

namespace moetail::bench {

using Bf16 = std::uint16_t;
using protocol::Shape;

/// A layer's weights: up_proj [H, L], norm [L].
struct BaselineLayer {
  const Bf16* up_proj = nullptr;
  const Bf16* norm = nullptr;
};

/// What a baseline computes. Everything is viewed and must outlive it.
struct BaselineSpec {
  Shape shape;
  int batch = 0;
  int threads = 1;
  std::span<const BaselineLayer> layers;
  /// Input sets: the inputs of all ranks, in expanded or partial form, the same in all sets.
  std::span<const std::vector<verify::RankInput>> sets;
};

class Baseline {
 public:
  virtual ~Baseline() = default;

  /// Which primitives it is made of, for people.
  virtual std::string description() const = 0;

  /// Computes one layer on one input set; returns when the output is there.
  virtual void run_layer(int layer, int set) = 0;

  /// Output rows [B, H] of the layer's last run.
  virtual std::span<const Bf16> output(int layer) const = 0;
};

/// The unfused pipeline that a CPU user has today, in oneDNN. Finalize (expanded form) is a batched bf16 matmul [1, K] x [K, L]
/// for every token and rank; then come the fp32 sum over ranks, RMSNorm, one matmul with the full [H, L] up projection, the sum
/// of the shared partials, and the adds. What could be prepared once is prepared here, outside of all timing: primitives, one
/// contiguous array of all ranks' rows, and the up projections in the layout that oneDNN runs fastest. Throws Code::unsupported
/// where this build or this machine has no bf16 oneDNN.
std::unique_ptr<Baseline> make_onednn_baseline(const BaselineSpec& spec);

/// Bytes that make_onednn_baseline allocates at most.
std::uint64_t onednn_baseline_bytes(const BaselineSpec& spec);

}  // namespace moetail::bench
