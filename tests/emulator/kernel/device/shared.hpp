// SPDX-License-Identifier: Apache-2.0
// src/device/shared.hpp, emulated.
#pragma once

#include "device/annotate.hpp"

// Dynamic shared memory is declared by kernels under this name; its place is the emulator's.
extern unsigned char shared[];

namespace moetail::device {

MOETAIL_DEVICE u32 shared_address(const volatile void* object) {
  return object == ::shared ? emulator::address_of_dynamic() : emulator::address_of_static();
}

template <typename T>
MOETAIL_DEVICE T load_shared_as(u32 from) {
  T value;
  std::memcpy(&value, emulator::shared_at(from, sizeof value), sizeof value);
  return value;
}
template <typename T>
MOETAIL_DEVICE void store_shared_as(u32 to, const T& value) {
  std::memcpy(emulator::shared_at(to, sizeof value), &value, sizeof value);
}

MOETAIL_DEVICE u32 load_shared(u32 from) {
  return load_shared_as<u32>(from);
}
MOETAIL_DEVICE float load_shared_float(u32 from) {
  return load_shared_as<float>(from);
}
MOETAIL_DEVICE Line load_shared_line(u32 from) {
  return load_shared_as<Line>(from);
}
MOETAIL_DEVICE u64 load_shared_pair(u32 from) {
  return load_shared_as<u64>(from);
}
MOETAIL_DEVICE void store_shared(u32 to, u32 word) {
  store_shared_as(to, word);
}
MOETAIL_DEVICE void store_shared(u32 to, float value) {
  store_shared_as(to, value);
}
MOETAIL_DEVICE void store_shared(u32 to, u64 value) {
  store_shared_as(to, value);
}
MOETAIL_DEVICE void store_shared(u32 to, const Line& line) {
  store_shared_as(to, line);
}

}  // namespace moetail::device
