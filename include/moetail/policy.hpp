// SPDX-License-Identifier: Apache-2.0
// Which mode serves which (T, B), and what a call then costs: pure host functions that need no engine.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/kernel_choice.hpp"
#include "moetail/moetail.hpp"

namespace moetail {

/// The mode table, and what it asks of a GPU's kernels. Loaded from JSON, e.g. {"policy_version": 1, "front_up_to": {"8": 4, "16": 8},
/// "share_from": 16, "cuda_kernels": {"8": {"16": {"trigger": "after_polls", "tile": 16}}}}; keys that are absent keep their defaults, unknown keys
/// are an error.
struct Policy {
  /// T as the elements of front_up_to stand for it.
  static constexpr std::array<int, 5> kRankCounts = {1, 2, 4, 8, 16};

  int version = 1;  ///< part of the numeric contract: changes when slice counts do
  /// The largest batch that front mode serves, for each of kRankCounts; publish mode serves larger ones.
  std::array<int, 5> front_up_to = {8, 8, 8, 4, 8};
  int share_from = 16;  ///< publish mode shares reduced rows from this batch on
  /// CUDA engine, a rank alone on its device: for each of kRankCounts and kBatchBuckets what is asked of the tail's kernel. None of it
  /// changes a bit of the output, so ranks may differ in it.
  std::array<std::array<KernelChoice, kBatchBuckets.size()>, kRankCounts.size()> cuda_kernels = {};

  /// The built-in table of an engine: the values above, or what was measured for it (src/runtime/policy.cpp).
  static Policy of(Engine engine);
  /// Keys that the file lacks are those of `engine`'s built-in table. Throws Code::file (missing, ill-formed) or Code::invalid_argument
  /// (a value out of range) naming the file and the key.
  static Policy load(const std::string& path, Engine engine = Engine::cpu);
  /// The place in kRankCounts. Throws Code::invalid_argument for other numbers of ranks.
  static std::size_t rank_index(int ranks);
  int front_limit(int ranks) const;
  /// Whether ranks, or clusters, share the sums of a call's rows.
  bool shares(Mode mode, int batch) const { return mode == Mode::publish && batch >= share_from; }
  /// Whether calls of this batch, where their mode is left to the table, run so.
  bool serves(int ranks, int batch, Mode mode, bool shares_reduced) const;
  /// What is asked of a call's tail: cuda_kernels of the batch's bucket if the table serves that bucket so, since that is what a choice was
  /// measured for; nothing in another mode, which a call asked for, and above the last bucket.
  KernelChoice kernel_for(int ranks, int batch, Mode mode, bool shares_reduced) const;
};

/// What one call would run.
struct Plan {
  Mode mode = Mode::front;
  bool shares_reduced = false;
  int clusters = 1;  ///< CPU: threads a rank computes with, each owning a run of output columns
  int columns_per_cluster = 0;
  int slices = 1;  ///< K slices of the up projection; part of the numeric contract
  // Bytes and operations of all ranks together, each input counted once.
  std::uint64_t weight_bytes = 0;
  std::uint64_t input_bytes = 0;  ///< routed rows, weights and map, shared partials, residual
  std::uint64_t output_bytes = 0;
  std::uint64_t mailbox_bytes =
      0;  ///< written, read and re-armed in the boxes; not in the CPU floor: they stay in caches
  std::uint64_t flops = 0;  ///< of the up projection

  std::uint64_t floor_bytes() const { return weight_bytes + input_bytes + output_bytes; }
};

struct PlanRequest {
  Shape shape;
  int batch = 1;
  Mode mode = Mode::automatic;
  Form form = Form::expanded;
  WeightType weights = WeightType::bf16;
  bool residual = false;
  int threads = 0;  ///< over all ranks; 0: one a core
};

/// The plan that the runtime itself uses. Throws Code::invalid_argument or Code::unsupported with the rule
/// that is broken (shape, batch above capacity, front_poll forced beyond the polling capacity, two-shot with
/// a latent it cannot split).
Plan make_plan(const PlanRequest& request, const Policy& policy = {});

}  // namespace moetail
