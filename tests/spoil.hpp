// SPDX-License-Identifier: Apache-2.0
// Buffers made wrong: too short, null, misaligned.
#pragma once

#include <cstdint>
#include <span>

#include "moetail/moetail.hpp"

namespace moetail::testing {

template <class T>
std::span<const T> shorter(std::span<const T> span) {
  return span.first(span.size() - 1);
}
template <class T>
std::span<const T> missing(std::span<const T> span) {
  return {static_cast<const T*>(nullptr), span.size()};
}
/// One byte further: aligned for nothing. Nobody may read it.
template <class T>
std::span<const T> misaligned(std::span<const T> span) {
  return {reinterpret_cast<const T*>(reinterpret_cast<std::uintptr_t>(span.data()) + 1), span.size()};
}
/// One element further: aligned for the element, not for a line.
inline std::span<const Bf16> one_further(std::span<const Bf16> span) {
  return {span.data() + 1, span.size()};
}

}  // namespace moetail::testing
