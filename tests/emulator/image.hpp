// SPDX-License-Identifier: Apache-2.0
// Machine code of the emulated GPU: a shared library behind a head.
#pragma once

#include <cstdint>

namespace moetail::emulator {

struct Image {
  char magic[8];
  std::uint64_t bytes;
};
inline constexpr char kImageMagic[] = "emulated";

}  // namespace moetail::emulator
