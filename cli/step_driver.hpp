// SPDX-License-Identifier: Apache-2.0
// Runs decode steps of one configuration through the door, as an engine would, and measures each layer.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <vector>

#include "cli/buffer.hpp"
#include "cli/inputs.hpp"
#include "cli/judge.hpp"
#include "cli/residence.hpp"
#include "cli/weights.hpp"
#include "moetail/moetail.hpp"

namespace moetail::cli {

/// Elements of all layers' output rows on `num_ranks` ranks.
std::size_t output_size(const InputSpec& spec, std::size_t num_layers, int num_ranks);

/// The world that runs calls of `spec`: all ranks in this process, or rank 0 alone in replay.
World make_world(const InputSpec& spec, const WorldOptions& options);

/// Puts into a replayed rank's box what its peers send in calls of `inputs`, which has one set. `running`: the mode of those calls.
void fill_peers_of(const TailBox& box, const Inputs& inputs, Mode running);

/// What runs the steps of one configuration, wherever its ranks are.
class StepRunner : public StepOutput {
 public:
  /// Step number `step`: all layers on all ranks, each layer's rows taken out. Returns when it is complete. Throws
  /// Code::fault with the first fault.
  virtual void run_step(int step) = 0;

  /// Microseconds that each layer of the last step took: from the end of the one before to the end of this one's take, on rank
  /// 0's stream. For the first layer from the start of the step. On the CUDA engine the mean of the step, since looking at a clock
  /// between launches would take longer than they do.
  virtual std::span<const double> layer_us() const = 0;
};

/// One world, its boxes and the prepared tails of all layers. A step is enqueued whole before any of it runs, as the replay of
/// a captured graph would be, so the measured times hold no enqueueing.
class StepDriver : public StepRunner {
 public:
  /// `weights` and `inputs` are viewed, and copied to the device on the CUDA engine. `running`: the mode that the plan says;
  /// `asked`: what calls pass.
  StepDriver(const WorldOptions& options, std::span<const LayerWeights> weights, const Inputs& inputs,
             Mode asked, Mode running);
  /// The same for the ranks of `world` that this process has. `outputs`: where their rows go, [layers, ranks here, B, H].
  StepDriver(const World& world, std::span<Bf16> outputs, std::span<const LayerWeights> weights,
             const Inputs& inputs, Mode asked, Mode running);

  void run_step(int step) override;

  /// CPU engine: called in each step when all of it is enqueued and none of it runs.
  void call_before_release(std::function<void()> work) { before_release_ = std::move(work); }

  /// Output rows of the last step, [B, H]. `position`: the layer's place, from 0.
  std::span<const Bf16> output(int position, int rank) const override;

  /// Of the first rank here, where rank 0 is elsewhere.
  std::span<const double> layer_us() const override { return layer_us_; }

  /// Microseconds of the whole last step: from the moment the ranks' streams may begin until all of them have run dry.
  double step_us() const { return step_us_; }

  /// After a fault: whether the ranks here know of it only by another's poison.
  bool is_poisoned_by_another() const;

  int num_layers() const { return static_cast<int>(weights_.size()); }

 private:
  using Clock = std::chrono::steady_clock;

  void enqueue_layer(int position, int step);
  void produce(const PreparedTail& tail, int set, int rank);
  std::span<Bf16> output_rows(int position, int rank) const;
  PreparedTail& tail(int position, int rank);
  int end_rank() const { return world_.first_rank() + world_.local_ranks(); }
  std::size_t index_of(int rank) const { return static_cast<std::size_t>(rank - world_.first_rank()); }

  StepDriver(const World& world, std::span<Bf16> outputs, Buffer<Bf16> own,
             std::span<const LayerWeights> weights, const Inputs& inputs, Mode asked, Mode running);

  std::span<const LayerWeights> weights_;
  const Inputs& inputs_;
  Mode asked_, running_;
  Buffer<Bf16> own_outputs_;  // or none, where the caller gave memory
  std::span<Bf16> outputs_;   // [layers, ranks, B, H]
  std::function<void()> before_release_;
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
