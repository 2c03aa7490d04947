// SPDX-License-Identifier: Apache-2.0
// Numbers as people read them.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace moetail::cli {

/// "51.4 MB": decimal units, three digits or so.
inline std::string bytes_text(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 999.5 && unit < 4; ++unit) value /= 1000;
  const int digits = unit == 0 || value >= 99.95 ? 0 : 1;
  return fmt::format("{:.{}f} {}", value, digits, kUnits[unit]);
}

}  // namespace moetail::cli
