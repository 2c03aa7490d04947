// SPDX-License-Identifier: Apache-2.0
// How a text that came out of a file appears in an error message: one line, plain ASCII, never long.
#pragma once

#include <string>
#include <string_view>

namespace moetail::io {

/// `text` in double quotes. Quotes, backslashes and every byte outside of printable ASCII are escaped, so
/// that a hostile name cannot steer a terminal; a text above 120 bytes is cut and its length is told.
std::string escaped(std::string_view text);

}  // namespace moetail::io
