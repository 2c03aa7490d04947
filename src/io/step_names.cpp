// SPDX-License-Identifier: Apache-2.0
// Putting names together and taking them apart.
#include "io/step_names.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "io/layer_list.hpp"

namespace moetail::io {
namespace {

/// Cuts `head` off the front of `text`, if it is there.
bool take(std::string_view& text, std::string_view head) {
  if (!text.starts_with(head)) return false;
  text.remove_prefix(head.size());
  return true;
}

/// Cuts an index off the front of `text`, up to the next dot.
std::optional<int> take_index(std::string_view& text) {
  const std::size_t length = std::min(text.find('.'), text.size());
  const auto index = parse_index(text.substr(0, length));
  text.remove_prefix(length);
  return index;
}

}  // namespace

std::string step_name(int layer, int rank, StepField field) {
  return fmt::format("layer.{}.rank.{}.{}", layer, rank, kStepFields.at(static_cast<std::size_t>(field)));
}

std::optional<StepName> parse_step_name(std::string_view name) {
  if (!take(name, "layer.")) return std::nullopt;
  const auto layer = take_index(name);
  if (!layer || !take(name, ".rank.")) return std::nullopt;
  const auto rank = take_index(name);
  if (!rank || !take(name, ".")) return std::nullopt;
  const auto field = std::find(kStepFields.begin(), kStepFields.end(), name);
  if (field == kStepFields.end()) return std::nullopt;
  return StepName{*layer, *rank, static_cast<StepField>(field - kStepFields.begin())};
}

std::optional<BadMapEntry> first_bad_map_entry(std::span<const std::int32_t> map, std::size_t top_k,
                                               std::uint64_t num_rows) {
  const auto bad = std::find_if(map.begin(), map.end(), [&](std::int32_t row) {
    return row >= 0 && static_cast<std::uint64_t>(row) >= num_rows;
  });
  if (bad == map.end()) return std::nullopt;
  const auto index = static_cast<std::size_t>(bad - map.begin());
  return BadMapEntry{index / top_k, index % top_k, *bad};
}

}  // namespace moetail::io
