// SPDX-License-Identifier: Apache-2.0
// The tile instructions of AMX, one a function. The compilers' own intrinsics are not used, because those of g++ 12
// tell the optimizer neither that a configuration of 64 bytes nor that a tile of 1 KB is read from memory.
#pragma once

#include <cstddef>
#include <cstdint>

#define MOETAIL_AMX __attribute__((target("amx-tile,amx-bf16,avx512f,avx512vl,avx512bw,avx512dq")))
#define MOETAIL_AMX_INLINE MOETAIL_AMX inline __attribute__((always_inline))

namespace moetail::cpu::amx {

inline constexpr int kNumTiles = 8;
inline constexpr int kTileRows = 16;
inline constexpr std::size_t kTileRowBytes = 64;
inline constexpr std::size_t kTileBytes = kTileRows * kTileRowBytes;

/// What ldtilecfg reads: palette 1, and the rows and bytes a row of each tile.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

/// Configures and zeroes all tiles.
MOETAIL_AMX_INLINE void configure(const TileConfig& config) {
  asm volatile("ldtilecfg %0" ::"m"(config));
}

/// Returns the tiles to their initial state, which the kernel need not save.
MOETAIL_AMX_INLINE void release() {
  asm volatile("tilerelease" ::: "memory");
}

template <int kTile>
MOETAIL_AMX_INLINE void zero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}

/// Row i of the tile comes from `from + i * pitch` (bytes). Reads no more than the tile's configured rows and bytes.
template <int kTile>
MOETAIL_AMX_INLINE void load(const void* from, std::size_t pitch) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(pitch), "i"(kTile) : "memory");
}

template <int kTile>
MOETAIL_AMX_INLINE void store(void* to, std::size_t pitch) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(pitch), "i"(kTile) : "memory");
}

/// sum[m][n] += over k of a[m][2k] * b[k][2n] and a[m][2k + 1] * b[k][2n + 1], bf16 in and fp32 out. `a` is the first
/// source of the instruction: one row a row of `sum`.
template <int kSum, int kA, int kB>
MOETAIL_AMX_INLINE void multiply_add() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
}

}  // namespace moetail::cpu::amx
