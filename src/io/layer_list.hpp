// SPDX-License-Identifier: Apache-2.0
// Lists of layer indices as people write them: "1-8" or "1,3,5-7".
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moetail::io {

/// Largest layer or rank index that a name or a list may hold.
inline constexpr int kMaxIndex = 99999;

/// The layers of `text`, in its order: comma-separated indices and ascending ranges "first-last" (both
/// included), no spaces, no layer twice. Throws Error(Code::invalid_argument) naming the text, the part that
/// is wrong and what is accepted.
std::vector<int> parse_layer_list(std::string_view text);

/// The shortest text for `layers`: runs of neighbours become ranges. parse_layer_list reads it back.
std::string layer_list_text(std::span<const int> layers);

/// `digits` as an index from 0 to kMaxIndex in its one decimal form (no sign, no leading zero), or nothing.
std::optional<int> parse_index(std::string_view digits);

}  // namespace moetail::io
