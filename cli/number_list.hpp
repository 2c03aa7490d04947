// SPDX-License-Identifier: Apache-2.0
// Lists of numbers on the command line: "4", "1,4,8", "1-64" or a mixture.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moetail::cli {

/// The numbers of `text` in its order. Every number lies from `smallest` to `largest`, and none stands there twice. Throws
/// Code::invalid_argument that names `flag`, the text and what is accepted.
std::vector<int> parse_number_list(std::string_view flag, std::string_view text, int smallest, int largest);

/// The same for one number.
int parse_number(std::string_view flag, std::string_view text, int smallest, int largest);

/// The parts of `text` between commas; at least one, possibly empty.
std::vector<std::string_view> split_at_commas(std::string_view text);

}  // namespace moetail::cli
