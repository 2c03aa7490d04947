// SPDX-License-Identifier: Apache-2.0
// Escaping and cutting of foreign texts for error messages.
#include "io/escaped.hpp"

#include <fmt/format.h>

#include <cstddef>

namespace moetail::io {

std::string escaped(std::string_view text) {
  constexpr std::size_t kMaxShown = 120;
  std::string out = "\"";
  for (const char character : text.substr(0, kMaxShown)) {
    const auto byte = static_cast<unsigned char>(character);
    if (character == '"' || character == '\\') {
      out += '\\';
      out += character;
    } else if (byte >= 0x20 && byte < 0x7f) {
      out += character;
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  out += '"';
  if (text.size() > kMaxShown) out += fmt::format("... ({} bytes)", text.size());
  return out;
}

}  // namespace moetail::io
