// SPDX-License-Identifier: Apache-2.0
// Parsing and printing of layer lists.
#include "io/layer_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <unordered_set>

#include "base/error.hpp"
#include "io/escaped.hpp"

namespace moetail::io {

std::optional<int> parse_index(std::string_view digits) {
  if (digits.empty() || digits.size() > 5 || (digits.size() > 1 && digits.front() == '0'))
    return std::nullopt;
  int value = 0;
  for (const char digit : digits) {
    if (digit < '0' || digit > '9') return std::nullopt;
    value = 10 * value + (digit - '0');
  }
  static_assert(kMaxIndex == 99999, "five digits");
  return value;
}

std::vector<int> parse_layer_list(std::string_view text) {
  const auto reject = [&](std::string_view part, std::string_view reason) {
    base::fail(Code::invalid_argument,
               "layers = {}: {} {}: accepted are layers from 0 to {} and ranges of them, each layer once, "
               "such as 1-8 or "
               "1,3,5-7",
               escaped(text), escaped(part), reason, kMaxIndex);
  };
  std::vector<int> layers;
  std::unordered_set<int> seen;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    const std::string_view part = text.substr(start, comma - start);
    start = comma + 1;

    const std::size_t dash = part.find('-');
    const auto first = parse_index(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_index(part.substr(dash + 1));
    if (!first || !last) {
      reject(part, "is neither a layer nor a range");
    } else if (*first > *last) {
      reject(part, "runs backwards");
    } else {
      for (int layer = *first; layer <= *last; ++layer) {
        if (!seen.insert(layer).second) reject(part, fmt::format("repeats layer {}", layer));
        layers.push_back(layer);
      }
    }
  }
  return layers;
}

std::string layer_list_text(std::span<const int> layers) {
  std::string text;
  for (std::size_t first = 0; first < layers.size();) {
    std::size_t last = first;
    while (last + 1 < layers.size() && layers[last + 1] == layers[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += fmt::format("{}", layers[first]);
    if (last > first) text += fmt::format("-{}", layers[last]);
    first = last + 1;
  }
  return text;
}

}  // namespace moetail::io
