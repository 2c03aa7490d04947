// SPDX-License-Identifier: Apache-2.0
// The baseline on a GPU: the unfused tail of one rank as a user has it today without any communication.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/cuda/cublaslt.hpp"
#include "bench/cuda/gpu.hpp"
#include "protocol/mode.hpp"
#include "protocol/shape.hpp"

namespace moetail::bench {

/// What it computes with; addresses are the device's. Everything is viewed and must outlive it.
struct UnfusedSpec {
  protocol::Shape shape;  ///< ranks: what the up projection is cut for; rank 0's shard is computed
  int batch = 1;
  Form form = Form::expanded;  ///< or partial
  WeightType weight_type = WeightType::bf16;
  /// A layer each, from here on: rank 0's rows of the up projection [H/T, L], norm [L].
  std::vector<const Bf16*> shards, norms;
  std::vector<const Bf16*> rows;   ///< a layer each: [B*K, L]; partial form: [B, L]
  const void* weights = nullptr;   ///< [B, K]
  const Bf16* shared = nullptr;    ///< [B, H]
  const Bf16* residual = nullptr;  ///< [B, H] or null
};

/// finalize, RMSNorm, cuBLASLt's matrix product with the shard, add: a launch each (or what the library makes of its own), all layers in
/// one graph.
class UnfusedTail {
 public:
  /// Throws Code::unsupported where there is no cuBLASLt, or a form that it has no pipeline for.
  UnfusedTail(const Gpu& gpu, const UnfusedSpec& spec);

  /// Which algorithm of which library, for people.
  std::string description() const;
  /// One layer by itself, so that its rows can be looked at: rank 0's columns of the output [B, H/T].
  std::vector<Bf16> run_layer(int layer) const;
  /// All layers once; microseconds on the device.
  double replay() const { return graph_->replay(); }
  /// The rows that the last layer left.
  std::vector<Bf16> last_rows() const;

 private:
  void enqueue_operand(std::size_t layer) const;  ///< what comes before the matrix product
  void enqueue_layer(std::size_t layer) const;

  const Gpu& gpu_;
  UnfusedSpec spec_;
  std::shared_ptr<const CublasLt> library_;
  GpuKernel finalize_, norm_, add_;
  cuda::DeviceMemory partial_, operand_, product_, out_;
  std::unique_ptr<ShardGemm> gemm_;
  std::unique_ptr<TimedGraph> graph_;
};

}  // namespace moetail::bench
