// SPDX-License-Identifier: Apache-2.0
// Names and metadata keys of a captured step, shared by its reader and its writer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace moetail::io {

/// The tensors of one rank and layer.
enum class StepField { rows, map, weights, partial, shared, residual };

inline constexpr std::array<std::string_view, 6> kStepFields{"rows",    "map",    "weights",
                                                             "partial", "shared", "residual"};

/// Metadata keys, each optional: the version of the names ("1"), and facts that the tensors cannot show or
/// that are checked against them. Other keys may be anything.
inline constexpr const char* kStepVersionKey = "moetail_step";
inline constexpr const char* kStepRanksKey = "tp";
inline constexpr const char* kStepTopKKey = "top_k";
inline constexpr const char* kStepEpsKey = "eps";
inline constexpr const char* kStepVersion = "1";

/// What a tensor's name says.
struct StepName {
  int layer = 0;
  int rank = 0;
  StepField field = StepField::rows;
};

/// "layer.LAYER.rank.RANK.FIELD".
std::string step_name(int layer, int rank, StepField field);

/// The parts of `name`, or nothing if it does not have the form of step_name.
std::optional<StepName> parse_step_name(std::string_view name);

/// A map entry that is no row.
struct BadMapEntry {
  std::size_t token = 0;
  std::size_t k = 0;
  std::int32_t value = 0;
};

/// The first entry of `map` [B, K] that is neither negative nor below `num_rows`, or nothing.
std::optional<BadMapEntry> first_bad_map_entry(std::span<const std::int32_t> map, std::size_t top_k,
                                               std::uint64_t num_rows);

}  // namespace moetail::io
