// SPDX-License-Identifier: Apache-2.0
// A world of the public door on this GPU, with a small model's weights and inputs in device memory: what cases that speak to the library as
// its users do share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "moetail/moetail.hpp"
#include "tests/gpu/rig.hpp"

namespace moetail::gpu {

/// The text of examples/decode_kernels.cu: a user's kernels, compiled here by NVRTC.
std::string example_kernels();

inline WorldOptions on_cuda() {
  WorldOptions options;
  options.engine = Engine::cuda;
  return options;
}

/// Inputs of one call of all ranks: on the host, and in device memory. Rows are expanded, a dropped route with a weight of -1.
struct DoorInputs {
  int batch = 0;
  verify::CallInputs host;
  std::vector<cuda::DeviceMemory> rows, weights, map, shared;  // one a rank
};

class Door {
 public:
  Door(const Gpu& gpu, const Shape& shape, ::moetail::World world, int layers = 1, u64 seed = 1);

  ::moetail::World world;
  std::vector<TailBox> boxes;

  const Shape& shape() const { return shape_; }
  const Gpu& gpu() const { return gpu_; }
  int num_ranks() const { return world.local_ranks(); }
  int num_layers() const { return static_cast<int>(layers_.size()); }
  bool is_replay() const { return world.local_ranks() != world.ranks(); }
  PreparedTail& tail(int layer, int rank);
  /// The native stream of a rank of this process.
  cuda::Stream native(int rank) const;
  /// One rank's number in the group: its index here, but in replay.
  int group_rank(int rank) const { return boxes[static_cast<std::size_t>(rank)].rank(); }

  /// `drops`: every eighth route is dropped.
  DoorInputs make_inputs(int batch, u64 seed, bool drops = false) const;
  /// Replay: puts into the mailboxes what the peers send in calls of these inputs.
  void fill_peers(const DoorInputs& inputs, Mode mode) const;
  /// The routed input of one rank in expanded or permuted form.
  Routed routed(const DoorInputs& inputs, int rank, Form form) const;
  std::span<const Bf16> shared(const DoorInputs& inputs, int rank) const;

  /// One call of every rank through the ready producers: push where the mode needs it, run, and take to `to`.
  void call(int layer, const DoorInputs& inputs, Mode mode, const std::vector<cuda::DeviceMemory>& to,
            Form form = Form::expanded);

  std::vector<cuda::DeviceMemory> make_rows(int batch) const;
  /// Rank 0's rows; throws where ranks differ.
  std::vector<u16> read(const std::vector<cuda::DeviceMemory>& rows, int batch) const;
  /// Throws where `rows` are not what the oracle expects; in replay, in the own columns.
  void judge(int layer, const DoorInputs& inputs, Mode mode, const std::vector<u16>& rows) const;
  /// Throws where a word of the output rows of `batch` tokens that a consumer re-arms is not the sentinel.
  void require_armed(int batch) const;

 private:
  struct Layer {
    verify::LayerWeights host;
    cuda::DeviceMemory w_up, gamma;
  };
  const Gpu& gpu_;
  Shape shape_;
  std::vector<Layer> layers_;
  std::vector<PreparedTail> tails_;  // [layer][rank]
};

/// Launches a kernel of `source` on a rank's stream, its parameters given as they are.
template <typename... Parameters>
void launch_user(const Gpu& gpu, const cuda::Stream& stream, const std::string& source, const char* entry,
                 unsigned grid, bool dependent, const std::vector<std::string>& defines,
                 const Parameters&... parameters) {
  cuda::KernelRequest request;
  request.spec = {entry, source, defines, gpu.context->facts().arch(), {}};
  request.launch.grid = grid;
  request.launch.threads = 256;
  request.launch.dependent = dependent;
  request.budget.max_spill_bytes = 1 << 20;
  gpu.store->get(request, stream)->launch_with(request.launch, stream, parameters...);
}

}  // namespace moetail::gpu
