// SPDX-License-Identifier: Apache-2.0
// Parsing of number lists.
#include "cli/number_list.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/error.hpp"
#include "io/escaped.hpp"

namespace moetail::cli {
namespace {

std::optional<int> number_in(std::string_view text, int smallest, int largest) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if (value < smallest || value > largest) return std::nullopt;
  return value;
}

}  // namespace

std::vector<std::string_view> split_at_commas(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    parts.push_back(text.substr(start, comma - start));
    start = comma + 1;
  }
  return parts;
}

int parse_number(std::string_view flag, std::string_view text, int smallest, int largest) {
  const auto number = number_in(text, smallest, largest);
  if (!number)
    base::bad_argument(flag, io::escaped(text), fmt::format("a number from {} to {}", smallest, largest));
  return *number;
}

std::vector<int> parse_number_list(std::string_view flag, std::string_view text, int smallest, int largest) {
  std::vector<int> numbers;
  const auto reject = [&] {
    base::bad_argument(
        flag, io::escaped(text),
        fmt::format("numbers from {} to {} and ranges of them, none twice, such as 4 or 1,2,8-16", smallest,
                    largest));
  };
  for (const std::string_view part : split_at_commas(text)) {
    const std::size_t dash = part.find('-');
    const auto first = number_in(part.substr(0, dash), smallest, largest);
    const auto last =
        dash == std::string_view::npos ? first : number_in(part.substr(dash + 1), smallest, largest);
    if (!first || !last || *first > *last) reject();
    for (int number = *first; number <= *last; ++number) {
      if (std::find(numbers.begin(), numbers.end(), number) != numbers.end()) reject();
      numbers.push_back(number);
    }
  }
  return numbers;
}

}  // namespace moetail::cli
