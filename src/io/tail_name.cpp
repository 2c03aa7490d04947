// SPDX-License-Identifier: Apache-2.0
// Putting names together and taking them apart, from the end: the prefix is whatever remains.
#include "io/tail_name.hpp"

#include <fmt/format.h>

#include <cstddef>

#include "io/layer_list.hpp"

namespace moetail::io {
namespace {

constexpr std::string_view kLayers = "model.layers.";
constexpr std::string_view kUpProj = ".block_sparse_moe.routed_expert_up_proj.weight";
constexpr std::string_view kNorm = ".block_sparse_moe.routed_expert_norm.weight";

}  // namespace

std::string tail_name(std::string_view prefix, int layer, TailTensor tensor) {
  return fmt::format("{}{}{}{}", prefix, kLayers, layer, tensor == TailTensor::up_proj ? kUpProj : kNorm);
}

std::optional<TailName> parse_tail_name(std::string_view name) {
  TailName parts;
  if (name.ends_with(kUpProj)) {
    parts.tensor = TailTensor::up_proj;
    name.remove_suffix(kUpProj.size());
  } else if (name.ends_with(kNorm)) {
    parts.tensor = TailTensor::norm;
    name.remove_suffix(kNorm.size());
  } else {
    return std::nullopt;
  }
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const auto layer = parse_index(name.substr(dot + 1));
  name = name.substr(0, dot + 1);
  if (!layer || !name.ends_with(kLayers)) return std::nullopt;
  name.remove_suffix(kLayers.size());
  if (!name.empty() && !name.ends_with('.')) return std::nullopt;
  parts.layer = *layer;
  parts.prefix = name;
  return parts;
}

}  // namespace moetail::io
