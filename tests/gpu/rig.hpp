// SPDX-License-Identifier: Apache-2.0
// What the GPU cases share: the device, and a rig, which is one world on it with a layer's weights and one box a rank. Loopback
// runs all ranks in one launch; replay runs one rank whose peers' mailboxes were filled beforehand; streams runs each rank by itself
// on a stream of its own, as it would on a GPU of its own, where the device holds all of them at once.
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

/// A shape whose kernels compile and run fast, with whole vectors and equal slices as at K3's.
inline Shape small_shape(int ranks) {
  Shape shape;
  shape.hidden = 1024;
  shape.latent = 512;
  shape.ranks = ranks;
  shape.top_k = 16;
  shape.capacity = 16;
  shape.poll_capacity = 16;
  return shape;
}

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
  std::vector<std::string> options;        ///< of the compiler, for every kernel: -lineinfo

  static Gpu open();
  std::size_t free_bytes() const;  ///< of device memory
  cuda::KernelRequest request_of(const kernels::KernelPlan& plan,
                                 const std::vector<std::string>& defines = {}) const;
  /// Compiles them side by side: a case of many kernels waits for the slowest, not for their sum.
  void warm_up(const std::vector<cuda::KernelRequest>& requests) const;
};

enum class World { loopback, replay, streams };

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
  bool one_launch = false;  ///< twoshot: the tail publishes and pushes
  bool publishes =
      true;  ///< publish and twoshot: false where the partial is in the mailbox already (kernels/ablation.hpp)
  kernels::PutBy put = kernels::PutBy::peers;
  KernelChoice choice;  ///< the plan's own, or another of the tail's kernel
  u64 seed = 1;
  int layer = 0;             ///< label; a rig of several layers takes the weights by it
  std::optional<float> eps;  ///< another than the rig's shape has
  verify::Specials specials;
};

/// Stalls rank `rank` at a site, block `block` of it or all: for kernels built with MOETAIL_STALL_NS.
struct Stall {
  int rank = -1;
  protocol::Site site = protocol::Site::none;
  int block = -1;
};

/// Inputs of a call on the device.
struct DeviceInputs {
  verify::CallInputs host;
  std::vector<cuda::DeviceMemory> memory;
  std::vector<kernels::CallInputs> ranks;
};

/// Output rows [batch, hidden] of every rank, which must be equal: one rank's.
std::vector<u16> read_equal_rows(const Gpu& gpu, const std::vector<cuda::DeviceMemory>& destinations,
                                 int batch, int hidden);

class Rig {
 public:
  Rig(const Gpu& gpu, const Shape& shape, World world, u64 seed = 1, int replay_rank = 0, int layers = 1);

  const Shape& shape() const { return shape_; }
  std::vector<cuda::BoxMemory>& boxes() { return boxes_; }
  /// Of a new rig's waits. Longer where a tool slows every access down (main.cpp, `deadline=`).
  static inline u64 default_deadline_ns = 2'000'000'000;
  u64 deadline_ns = default_deadline_ns;
  std::vector<std::string> defines;  ///< of this rig's kernels, over the plan's
  Stall stall;

  kernels::PlanRequest plan_request(const Call& call, kernels::Kind kind) const;
  /// Inputs of every rank; in replay the peers come as finalized partials.
  DeviceInputs upload(const Call& call) const;
  /// Replay: puts what the peers would publish into all three slots, and their headers. Once a batch and mode. `and_own`: what the rank itself
  /// would, too, for kernels that leave it there (kernels/ablation.hpp).
  void fill_peers(const Call& call, const DeviceInputs& inputs, bool and_own = false);
  /// Rank `rank`'s partial [batch, L] as the contract sums it.
  std::vector<u16> partial_of(const Call& call, const DeviceInputs& inputs, int rank) const;
  /// Enqueues one launch of `kind`. `shard`: another copy of this rank's weights; `rows`: another copy of the expert rows.
  void launch(const Call& call, const DeviceInputs& inputs, kernels::Kind kind, const u16* shard = nullptr,
              const u16* rows = nullptr);
  /// World::streams: all launches of rank `rank`'s part of a call, up to its tail. Ranks may have other calls than their peers.
  void enqueue_rank(const Call& call, const DeviceInputs& inputs, int rank);
  /// All launches of a call, up to its tail.
  void enqueue(const Call& call, const DeviceInputs& inputs, const u16* shard = nullptr,
               const u16* rows = nullptr);
  /// Rank `rank`'s output rows, [batch, H], and arms them again (the consumer's part).
  std::vector<u16> take(int rank, int batch);
  /// One call from inputs to rows, checked against the oracle and for equal bits on all ranks. Returns rank 0's rows.
  std::vector<u16> check(const Call& call);
  std::vector<u16> check(const Call& call, const DeviceInputs& inputs);

  // check in parts, for cases that enqueue many calls before they look.
  /// The launches of a call: what comes before its tail, and its tail.
  static std::vector<kernels::Kind> kinds_of(const Call& call);
  /// What a call launches, its consumer's kernel included where there is one.
  std::vector<cuda::KernelRequest> kernels_of(const Call& call) const;
  void warm_up(const std::vector<Call>& calls) const;
  /// Room for every rank's output rows.
  std::vector<cuda::DeviceMemory> make_destinations(int batch) const;
  /// Enqueues the consumer: output rows to `destinations`, re-armed behind it.
  void consume(const Call& call, const DeviceInputs& inputs,
               const std::vector<cuda::DeviceMemory>& destinations);
  void synchronize();
  void require_no_fault() const;
  /// Every rank's rows, once all is done; throws where ranks differ.
  std::vector<u16> equal_rows(const std::vector<cuda::DeviceMemory>& destinations, int batch);
  /// Throws where `rows` are not what the oracle expects.
  void judge(const Call& call, const DeviceInputs& inputs, const std::vector<u16>& rows) const;
  /// A copy of `count` rows of a mailbox.
  std::vector<u8> mailbox(int rank, protocol::Region region, int slot, int source, int count) const;

  void arm_all();
  const u16* shard(int rank, int layer = 0) const;
  const verify::LayerWeights& weights(int layer = 0) const {
    return layers_[static_cast<std::size_t>(layer) % layers_.size()].host;
  }
  int replay_rank() const { return replay_rank_; }
  /// Rank `rank`'s stream.
  const cuda::Stream& stream(int rank) const;

 private:
  /// Replay in two-shot mode: the peers' chunks of their partials, and the other owners' sums.
  void fill_chunks(const Call& call, const DeviceInputs& inputs, bool and_own);
  kernels::RankArgs rank_args(int rank) const;
  const cuda::BoxMemory& box(int rank) const;
  /// One launch for the ranks [begin, end).
  void launch_ranks(const cuda::KernelRequest& request, const DeviceInputs& inputs, int batch, int begin,
                    int end, const u16* shard, const u16* rows);

  struct Layer {
    verify::LayerWeights host;
    cuda::DeviceMemory w_up, gamma;
  };
  const Gpu& gpu_;
  Shape shape_;
  World world_;
  int replay_rank_;
  protocol::Layout layout_;
  std::vector<Layer> layers_;
  cuda::DeviceMemory scratch_;
  std::vector<cuda::Stream> streams_;   // World::streams: one a rank
  std::vector<cuda::BoxMemory> boxes_;  // one a rank; replay: the one rank's
};

/// A kernel that lets its successor start at once, waits `ns` and only then writes `bytes` from `from` to `to`: what a predecessor
/// in the stream may do at its worst.
void launch_late_writer(const Gpu& gpu, const cuda::Stream& stream, void* to, const void* from,
                        std::size_t bytes, u64 ns);

/// A case of the runner.
struct Case {
  std::string name;
  void (*run)(const Gpu&);
};
std::vector<Case> front_cases();
std::vector<Case> mode_cases();
std::vector<Case> fault_cases();
std::vector<Case> host_cases();
std::vector<Case> control_cases();
std::vector<Case> stress_cases();
std::vector<Case> graph_cases();
std::vector<Case> contract_cases();
std::vector<Case> dependent_cases();
std::vector<Case> stall_cases();
std::vector<Case> user_cases();
std::vector<Case> capture_cases();
std::vector<Case> early_cases();
std::vector<Case> small_cases();
std::vector<Case> mismatch_cases();
std::vector<Case> pattern_cases();
/// Cases that are run by their full names alone.
std::vector<Case> planted_cases();
/// Of cases with many thousand calls a hundredth is made (main.cpp, `few`).
inline bool few_calls = false;
/// Prints the table of replay timings; false where a check failed.
bool run_bench(Gpu& gpu, const std::vector<std::string>& words);
/// Prints what each stage costs; false where a whole kernel's check failed.
bool run_ablation(const Gpu& gpu, const std::vector<std::string>& words);

}  // namespace moetail::gpu
