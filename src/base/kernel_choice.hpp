// SPDX-License-Identifier: Apache-2.0
// What a policy may ask of a tail's kernel on a GPU where the plan's own choice is not the fastest. None of it changes a bit of the output: the slice
// count, which would, is not here.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <string>

namespace moetail {

/// Batches that kernels are compiled for, and that choices are kept by: a batch runs the kernel of the least that holds it. Above the last the
/// kernel is the capacity's, and there is no choice.
inline constexpr std::array<int, 8> kBatchBuckets = {1, 2, 4, 8, 16, 32, 64, 128};

/// The place in kBatchBuckets of the bucket that holds `batch`; their number where none does.
constexpr std::size_t bucket_index(int batch) {
  std::size_t i = 0;
  while (i < kBatchBuckets.size() && kBatchBuckets[i] < batch) ++i;
  return i;
}

/// Where a launch lets its successor start, in the order of kernels::Trigger's numbers.
inline constexpr std::array<const char*, 7> kTriggerNames = {
    "at_entry", "after_polls", "never", "after_publication", "after_errands", "after_product", "after_wait"};

struct KernelChoice {
  static constexpr int kOwn = 0, kOwnTrigger = -1;  ///< the plan's own choice

  int trigger = kOwnTrigger;  ///< of kTriggerNames
  int row_block =
      kOwn;  ///< rows of the shard that a cluster multiplies at a time: 2, 4 or 8 for each of its blocks
  int tile = kOwn;    ///< tokens that it multiplies them with at a time, at most
  int stages = kOwn;  ///< row blocks of weights that shared memory holds
  int warps = kOwn;   ///< compute warps of a block

  // NOLINTNEXTLINE(modernize-use-nullptr): it takes the 0 that a comparison is compared with for a pointer
  auto operator<=>(const KernelChoice&) const = default;
};

// Accepted of each; a plan refuses further what a shape or a device has no room for.
inline constexpr std::array<int, 4> kRowBlocks = {16, 32, 64, 128};
inline constexpr std::array<int, 5> kTiles = {8, 16, 32, 64, 128};
inline constexpr std::array<int, 2> kWarpCounts = {8, 16};
inline constexpr int kMaxStages = 64;

/// "trigger = after_polls, tile = 16"; "as planned" where nothing is asked for.
std::string choice_text(const KernelChoice& choice);

}  // namespace moetail
