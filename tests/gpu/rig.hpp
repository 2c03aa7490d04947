// SPDX-License-Identifier: Apache-2.0
// What the GPU cases share: the device, and a rig, which is one world on it with a layer's weights and one box a rank. Loopback
// runs all ranks in one launch; replay runs one rank whose peers' mailboxes were filled beforehand.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/cuda/box_memory.hpp"
#include "engine/cuda/kernel_store.hpp"
#include "kernels/args.hpp"
#include "kernels/plan.hpp"
#include "verify/compare.hpp"
#include "verify/inputs.hpp"

namespace moetail::gpu {

using protocol::Shape;
using protocol::u16;
using protocol::u64;
using protocol::u8;

/// Throws with the text; what a case fails by.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};
template <typename... Args>
void require(bool holds, fmt::format_string<Args...> format, Args&&... args) {
  if (!holds) throw Failure(fmt::format(format, std::forward<Args>(args)...));
}

struct Gpu {
  cuda::ContextRef context;
  std::shared_ptr<cuda::KernelCache> cache;
  std::unique_ptr<cuda::KernelStore> store;
  std::unique_ptr<cuda::Stream> stream;
  kernels::DeviceShape shape;
  std::vector<std::string> extra_defines;  ///< of every kernel: for experiments

  static Gpu open();
  cuda::KernelRequest request_of(const kernels::KernelPlan& plan) const;
  std::shared_ptr<const cuda::Kernel> kernel(const kernels::KernelPlan& plan) const;
};

enum class World { loopback, replay };

/// How a call is made.
struct Call {
  int batch = 1;
  Mode mode = Mode::front;
  Form form = Form::expanded;
  WeightType weights = WeightType::bf16;
  bool residual = false;
  bool shares_reduced = false;
  bool pushes =
      true;  ///< publish and twoshot: the publishing kernel pushes too, else a launch of its own does
  kernels::PutBy put = kernels::PutBy::peers;
  int trigger = 4;
  u64 seed = 1;
  int layer = 0;  ///< label
};

/// Inputs of a call on the device.
struct DeviceInputs {
  verify::CallInputs host;
  std::vector<cuda::DeviceMemory> memory;
  std::vector<kernels::CallInputs> ranks;
};

class Rig {
 public:
  Rig(const Gpu& gpu, const Shape& shape, World world, u64 seed = 1, int replay_rank = 0);

  const Shape& shape() const { return shape_; }
  std::vector<cuda::BoxMemory>& boxes() { return boxes_; }
  u64 deadline_ns = 2'000'000'000;

  kernels::PlanRequest plan_request(const Call& call, kernels::Kind kind) const;
  /// Inputs of every rank; in replay the peers come as finalized partials.
  DeviceInputs upload(const Call& call) const;
  /// Replay: puts what the peers would publish into all three slots, and their headers. Once a batch and mode.
  void fill_peers(const Call& call, const DeviceInputs& inputs);
  /// Rank `rank`'s partial [batch, L] as the contract sums it.
  std::vector<u16> partial_of(const Call& call, const DeviceInputs& inputs, int rank) const;
  /// Enqueues one launch of `kind`. `shard`: another copy of this rank's weights; `rows`: another copy of the expert rows.
  void launch(const Call& call, const DeviceInputs& inputs, kernels::Kind kind, const u16* shard = nullptr,
              const u16* rows = nullptr);
  /// All launches of a call, up to its tail.
  void enqueue(const Call& call, const DeviceInputs& inputs, const u16* shard = nullptr,
               const u16* rows = nullptr);
  /// Rank `rank`'s output rows, [batch, H], and arms them again (the consumer's part).
  std::vector<u16> take(int rank, int batch);
  /// One call from inputs to rows, checked against the oracle and for equal bits on all ranks. Returns rank 0's rows.
  std::vector<u16> check(const Call& call);
  std::vector<u16> check(const Call& call, const DeviceInputs& inputs);

  void arm_all();
  const u16* shard(int rank) const;
  const verify::LayerWeights& weights() const { return weights_; }
  int replay_rank() const { return replay_rank_; }

 private:
  /// Replay in two-shot mode: the peers' chunks of their partials, and the other owners' sums.
  void fill_chunks(const Call& call, const DeviceInputs& inputs);
  kernels::RankArgs rank_args(int rank) const;

  const Gpu& gpu_;
  Shape shape_;
  World world_;
  int replay_rank_;
  protocol::Layout layout_;
  verify::LayerWeights weights_;
  cuda::DeviceMemory w_up_, gamma_, scratch_;
  std::vector<cuda::BoxMemory> boxes_;  // one a rank; replay: the one rank's
};

/// A case of the runner.
struct Case {
  std::string name;
  void (*run)(const Gpu&);
};
std::vector<Case> front_cases();
std::vector<Case> mode_cases();
std::vector<Case> fault_cases();
/// Prints the table of replay timings; false where a check failed.
bool run_bench(Gpu& gpu, const std::vector<std::string>& words);

}  // namespace moetail::gpu
