// SPDX-License-Identifier: Apache-2.0
// Rank 0 of a replayed group on a GPU, all layers in one graph, through the door as an engine would call it.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/cuda/gpu.hpp"
#include "cli/inputs.hpp"
#include "cli/judge.hpp"
#include "cli/setup.hpp"
#include "cli/weights.hpp"

namespace moetail::cli {

/// Every layer's weights on the device, each in memory of its own: the rows of the up projection that `weights` has, and norm.
class GpuWeights {
 public:
  GpuWeights(const bench::Gpu& gpu, std::span<const LayerWeights> weights);
  std::size_t num_layers() const { return layers_.size(); }
  const Bf16* up_proj(std::size_t position) const { return layers_[position].up_proj.as<Bf16>(); }
  const Bf16* norm(std::size_t position) const { return layers_[position].norm.as<Bf16>(); }

 private:
  struct Layer {
    cuda::DeviceMemory up_proj, norm;
  };
  std::vector<Layer> layers_;
};

/// Rank 0's inputs of one configuration on the device: one set, with copies of the routed rows that layers take in turns.
class GpuInputs {
 public:
  /// Copies of the routed rows that lie in L2, where an expert kernel has just written its rows: two where both take at most a quarter of it, else
  /// one. Between two uses of one of them are the weights and mailboxes of two layers, or one. Cold rows are a copy a layer, with the weights of all
  /// others in between.
  static int warm_copies(const bench::Gpu& gpu, const InputSpec& spec);
  GpuInputs(const bench::Gpu& gpu, const Inputs& inputs, int num_copies);
  const Routed& routed(std::size_t position) const { return routed_[position % routed_.size()]; }
  std::span<const Bf16> shared() const { return shared_; }
  std::span<const Bf16> residual() const { return residual_; }

 private:
  template <typename T>
  std::span<const T> upload(const bench::Gpu& gpu, std::span<const T> host);

  std::vector<cuda::DeviceMemory> memory_;
  std::vector<Routed> routed_;
  std::span<const Bf16> shared_, residual_;
};

/// A world and its box whose kernels are ready.
struct WarmBox {
  World world;
  TailBox box;

  /// Compiles what calls of `one` need. `options`: with the stream that will be captured.
  static WarmBox make(const Configuration& one, const WorldOptions& options);
};

/// Rank 0's rows of the up projections of all configurations, those of the smallest group that is asked for: a larger one's are the first of them.
std::vector<LayerWeights> replayed_shards(const RunSetup& setup, std::uint64_t seed, Progress& progress);

/// A box that is wanted; `one` must outlive the making.
struct WarmOrder {
  const Configuration* one = nullptr;
  WorldOptions options;
};
/// One that was made, or what kept it from being.
class WarmResult {
 public:
  void make(const WarmOrder& order) noexcept;
  /// Once. Throws what make met with.
  WarmBox take();

 private:
  std::optional<WarmBox> box_;
  std::exception_ptr error_;
};
/// Makes all of them side by side, in order: each takes seconds of a core where nobody has compiled its kernels before.
std::vector<WarmResult> warm_side_by_side(std::span<const WarmOrder> orders);

/// Of both programs of a benchmark, or of traced replays, before anything counts: a chip that was idle has to come to its clock.
inline constexpr double kClockUs = 50'000;

/// The tokens of layer number `position` that are judged: 16 of a layer, taken from another place of the batch in each, since float64 takes
/// milliseconds a row.
std::pair<int, int> judged_tokens(std::size_t position, int batch);

/// Judges each layer's rows of ReplayRank::run_each, at those tokens.
void judge_first_run(Judge& judge, std::span<const Bf16> rows, int num_layers, int batch);

class ReplayRank {
 public:
  /// Everything is viewed and must outlive it.
  ReplayRank(const bench::Gpu& gpu, WarmBox warm, const Configuration& one, const GpuWeights& weights,
             std::span<const LayerWeights> layers, const Inputs& inputs, const GpuInputs& on_gpu, bool takes);

  /// One eager step, every layer's rows taken: [layers, B, H]. Throws Code::fault.
  std::vector<Bf16> run_each();
  /// All layers once, in a graph that the first call captures; microseconds on the device. Without `takes` nobody consumes the rows: a
  /// later layer overwrites them.
  double replay();
  /// The rows [B, H] that the last layer left, after a replay. Throws Code::fault where anything before it faulted.
  std::vector<Bf16> last_rows();

 private:
  OutView enqueue_tail(std::size_t position);
  std::size_t row_elements() const;

  const bench::Gpu& gpu_;
  WarmBox warm_;
  const Configuration& one_;
  const GpuInputs& inputs_;
  bool takes_;
  cuda::DeviceMemory taken_;
  const Bf16* in_place_ = nullptr;
  std::vector<PreparedTail> tails_;
  std::optional<bench::TimedGraph> graph_;
};

/// Throws Code::invalid_argument for more layers than a device's trace keeps calls.
void check_traceable(const char* flag, int layers);

/// What `replays` replays of a rank leave in `trace`, its world's, after some that do not count; the calls before are forgotten. Returns the rows
/// [B, H] that the last layer left. Throws Code::fault.
std::vector<Bf16> trace_replays(ReplayRank& rank, Trace& trace, int replays, Progress& progress);

}  // namespace moetail::cli
