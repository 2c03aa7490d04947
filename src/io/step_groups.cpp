// SPDX-License-Identifier: Apache-2.0
// Grouping by name, and the rule that no rank of any layer may be absent.
#include "io/step_groups.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "io/escaped.hpp"
#include "io/layer_list.hpp"

namespace moetail::io {

std::optional<int> integer_metadata(const SafetensorsFile& file, const char* key) {
  const auto text = file.metadata().find(key);
  if (text == file.metadata().end()) return std::nullopt;
  const auto value = parse_index(text->second);
  if (!value || *value == 0) {
    base::fail(Code::file, "{}: __metadata__: {} = {}: accepted is 1 to {}", file.name(), key,
               escaped(text->second), kMaxIndex);
  }
  return value;
}

StepGroups::StepGroups(const SafetensorsFile& file) {
  const auto version = file.metadata().find(kStepVersionKey);
  if (version != file.metadata().end() && version->second != kStepVersion) {
    base::fail(Code::file, "{}: __metadata__: {} = {}: accepted is {}", file.name(), kStepVersionKey,
               escaped(version->second), kStepVersion);
  }
  for (const Tensor& tensor : file.tensors()) {
    const auto name = parse_step_name(tensor.name);
    if (!name) {
      base::fail(Code::file,
                 "{}: tensor {}: accepted are the names layer.LAYER.rank.RANK.FIELD, with both indices from "
                 "0 to {} and "
                 "FIELD one of {}",
                 file.name(), escaped(tensor.name), kMaxIndex, fmt::join(kStepFields, ", "));
    }
    by_rank_[{name->layer, name->rank}][name->field] = &tensor;
    num_ranks_ = std::max(num_ranks_, name->rank + 1);
  }
  if (by_rank_.empty())
    base::fail(Code::file, "{}: has no tensor: accepted is at least one layer", file.name());
  if (const auto ranks = integer_metadata(file, kStepRanksKey)) {
    if (*ranks < num_ranks_) {
      base::fail(Code::file, "{}: __metadata__: {} = {}: accepted is at least {}, as there is a rank {}",
                 file.name(), kStepRanksKey, *ranks, num_ranks_, num_ranks_ - 1);
    }
    num_ranks_ = *ranks;
  }
  check_all_ranks(file);
}

void StepGroups::check_all_ranks(const SafetensorsFile& file) const {
  // Walking the sorted groups, each must be the one that follows the last.
  int layer = by_rank_.begin()->first.first;
  int rank = 0;
  for (const auto& [key, tensors] : by_rank_) {
    if (rank == num_ranks_) {
      layer = key.first;
      rank = 0;
    }
    if (key != LayerAndRank{layer, rank}) break;
    ++rank;
  }
  if (rank != num_ranks_) {
    base::fail(Code::file,
               "{}: layer {} has no tensors of rank {}: accepted is every rank from 0 to {} in every layer",
               file.name(), layer, rank, num_ranks_ - 1);
  }
}

}  // namespace moetail::io
