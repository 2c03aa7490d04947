// SPDX-License-Identifier: Apache-2.0
// Runs decode steps of one configuration through the door, as an engine would, and measures each layer.
#pragma once

#include <chrono>
#include <span>
#include <vector>

#include "cli/buffer.hpp"
#include "cli/inputs.hpp"
#include "cli/judge.hpp"
#include "cli/residence.hpp"
#include "cli/weights.hpp"
#include "moetail/moetail.hpp"

namespace moetail::cli {

/// The world that runs calls of `spec`: all ranks in this process, or rank 0 alone in replay.
World make_world(const InputSpec& spec, const WorldOptions& options);

/// One world, its boxes and the prepared tails of all layers. A step is enqueued whole before any of it runs, as the replay of
/// a captured graph would be, so the measured times hold no enqueueing.
class StepDriver : public StepOutput {
 public:
  /// `weights` and `inputs` are viewed, and copied to the device on the CUDA engine. `running`: the mode that the plan says;
  /// `asked`: what calls pass.
  StepDriver(const WorldOptions& options, std::span<const LayerWeights> weights, const Inputs& inputs,
             Mode asked, Mode running);

  /// Step number `step`: all layers on all ranks, each layer's rows taken out. Returns when it is complete. Throws
  /// Code::fault with the first fault.
  void run_step(int step);

  /// Output rows of the last step, [B, H]. `position`: the layer's place, from 0.
  std::span<const Bf16> output(int position, int rank) const override;

  /// Microseconds that each layer of the last step took: from the end of the one before to the end of this one's take, on rank
  /// 0's stream. For the first layer from the start of the step. On the CUDA engine the mean of the step, since looking at a clock
  /// between launches would take longer than they do.
  std::span<const double> layer_us() const { return layer_us_; }

  /// Microseconds of the whole last step: from the moment the ranks' streams may begin until all of them have run dry.
  double step_us() const { return step_us_; }

  int num_layers() const { return static_cast<int>(weights_.size()); }
  int num_ranks() const { return world_.local_ranks(); }

 private:
  using Clock = std::chrono::steady_clock;

  void enqueue_layer(int position, int step);
  void fill_peers();
  void produce(const PreparedTail& tail, int set, int rank);
  std::span<Bf16> output_rows(int position, int rank) const;
  PreparedTail& tail(int position, int rank);

  std::span<const LayerWeights> weights_;
  const Inputs& inputs_;
  Mode asked_, running_;
  Buffer<Bf16> outputs_;  // [layers, ranks, B, H]
  std::vector<Clock::time_point> stamps_;
  std::vector<double> layer_us_;
  double step_us_ = 0;
  // The world comes last, so that its threads end before what they use does.
  World world_;
  Residence residence_;
  std::vector<TailBox> boxes_;
  std::vector<PreparedTail> tails_;  // [layers, ranks]
};

}  // namespace moetail::cli
