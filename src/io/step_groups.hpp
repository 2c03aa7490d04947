// SPDX-License-Identifier: Apache-2.0
// The tensors of a captured step by layer and rank, with nothing but their names judged.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <utility>

#include "io/safetensors.hpp"
#include "io/step_names.hpp"

namespace moetail::io {

using LayerAndRank = std::pair<int, int>;

/// The tensors of one layer and rank; null where there is none.
class StepTensors {
 public:
  const Tensor*& operator[](StepField field) { return tensors_[static_cast<std::size_t>(field)]; }
  const Tensor* operator[](StepField field) const { return tensors_[static_cast<std::size_t>(field)]; }

 private:
  std::array<const Tensor*, kStepFields.size()> tensors_{};
};

/// Groups a file's tensors. Every layer has every rank from 0 to num_ranks() - 1, and there is at least one
/// layer.
class StepGroups {
 public:
  /// Throws Error(Code::file) naming the tensor, layer, rank or metadata value that is wrong and what is
  /// accepted. Points into `file`, which must outlive the object.
  explicit StepGroups(const SafetensorsFile& file);

  const std::map<LayerAndRank, StepTensors>& by_rank() const noexcept { return by_rank_; }
  int num_ranks() const noexcept { return num_ranks_; }

 private:
  void check_all_ranks(const SafetensorsFile& file) const;

  std::map<LayerAndRank, StepTensors> by_rank_;
  int num_ranks_ = 0;
};

/// The metadata under `key` as a number from 1 to kMaxIndex, or nothing where there is none. Throws
/// Error(Code::file) if it is something else.
std::optional<int> integer_metadata(const SafetensorsFile& file, const char* key);

}  // namespace moetail::io
