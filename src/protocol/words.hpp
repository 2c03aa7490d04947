// SPDX-License-Identifier: Apache-2.0
// Integer words, the 16-byte line, and the annotations that let one text serve g++, clang++, nvcc and NVRTC.
// NVRTC has no <cstdint>, so the protocol room spells its own integers and includes nothing from outside
// itself.
#pragma once

#if defined(__CUDACC__)
#define MOETAIL_FN __host__ __device__ inline
#else
#define MOETAIL_FN inline
#endif

namespace moetail::protocol {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using i32 = int;
// `unsigned long` is 64 bits wide on LP64 and is what std::uint64_t is there; Windows (LLP64) is not
// supported.
using u64 = unsigned long;
using i64 = long;
static_assert(sizeof(u16) == 2 && sizeof(u32) == 4 && sizeof(u64) == 8, "moetail needs an LP64 platform");

/// What one mailbox access moves: 16 bytes, eight bf16 columns, the widest access PTX has on every chip.
struct alignas(16) Line {
  u32 word[4];
};
inline constexpr int kLineBytes = 16;
inline constexpr int kLineColumns = kLineBytes / 2;

}  // namespace moetail::protocol
