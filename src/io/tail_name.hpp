// SPDX-License-Identifier: Apache-2.0
// The names of the tail's two tensors in a Kimi K3 checkpoint.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace moetail::io {

/// The two tensors of a MoE layer that the tail needs.
enum class TailTensor {
  up_proj,  ///< "...routed_expert_up_proj.weight", [H, L] bf16
  norm,     ///< "...routed_expert_norm.weight", [L] bf16
};

/// What a tensor's name says.
struct TailName {
  std::string prefix;  ///< what stands before "model.layers.": empty, or ends with a dot
  int layer = 0;
  TailTensor tensor = TailTensor::up_proj;
};

/// PREFIX + "model.layers.LAYER.block_sparse_moe.routed_expert_{up_proj|norm}.weight".
std::string tail_name(std::string_view prefix, int layer, TailTensor tensor);

/// The parts of `name`, or nothing if it does not have the form of tail_name. A layer that is no plain index
/// from 0 to kMaxIndex does not have it.
std::optional<TailName> parse_tail_name(std::string_view name);

}  // namespace moetail::io
