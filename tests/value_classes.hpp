// SPDX-License-Identifier: Apache-2.0
// What a bf16 value is, beside which number: where plain evaluation has a NaN or an infinity an engine has to have it too.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "moetail/moetail.hpp"

namespace moetail::testing {

enum class Class { number, nan, plus_inf, minus_inf };

inline Class class_of(Bf16 value) {
  if ((value & 0x7F80) != 0x7F80) return Class::number;
  if ((value & 0x007F) != 0) return Class::nan;
  return (value & 0x8000) != 0 ? Class::minus_inf : Class::plus_inf;
}

/// The first element whose class is another one, or "".
inline std::string other_class(const std::vector<Bf16>& expected, const std::vector<Bf16>& seen) {
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (class_of(expected[i]) != class_of(seen[i]))
      return fmt::format("element {}: {:#06x}, plain evaluation has {:#06x}", i, seen[i], expected[i]);
  return "";
}

/// Near a sentinel, or at an end of a class.
inline bool is_at_an_end(Bf16 pattern) {
  const int magnitude = pattern & 0x7FFF;
  return magnitude <= 1 || (magnitude >= 0x007F && magnitude <= 0x0081) ||
         (magnitude >= 0x7F7E && magnitude <= 0x7F82) || magnitude >= 0x7FFE;
}

}  // namespace moetail::testing
