// SPDX-License-Identifier: Apache-2.0
// The operand's way into B tiles of AMX: pairs of columns by tokens, transposed in registers.
#pragma once

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push  // g++ 12 warns of its own _mm512_undefined_*
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstddef>
#include <vector>

#include "engine/cpu/arith.hpp"
#include "engine/cpu/arith_amx_tile.hpp"

namespace moetail::cpu::amx {

inline constexpr int kStep = 32;        // columns that one tdpbf16ps sums
inline constexpr int kTileTokens = 16;  // tokens of one B tile
inline constexpr std::size_t kStepBytes = kStep * sizeof(Bf16);

struct alignas(64) CacheLine {
  char bytes[64];
};

/// 16 x 16 words, row i of the result in word[i].
MOETAIL_AMX_INLINE void transpose(__m512i (&word)[16]) {
  __m512i half[16];
  for (int i = 0; i < 16; i += 2) {
    half[i] = _mm512_unpacklo_epi32(word[i], word[i + 1]);
    half[i + 1] = _mm512_unpackhi_epi32(word[i], word[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    word[i] = _mm512_unpacklo_epi64(half[i], half[i + 2]);
    word[i + 1] = _mm512_unpackhi_epi64(half[i], half[i + 2]);
    word[i + 2] = _mm512_unpacklo_epi64(half[i + 1], half[i + 3]);
    word[i + 3] = _mm512_unpackhi_epi64(half[i + 1], half[i + 3]);
  }
  // word[4 q + i] now holds, in its 128-bit lane l, words 4q..4q+3 of column 4 l + i.
  for (int i = 0; i < 4; ++i) {
    half[i] = _mm512_shuffle_i32x4(word[i], word[4 + i], 0x88);
    half[4 + i] = _mm512_shuffle_i32x4(word[i], word[4 + i], 0xDD);
    half[8 + i] = _mm512_shuffle_i32x4(word[8 + i], word[12 + i], 0x88);
    half[12 + i] = _mm512_shuffle_i32x4(word[8 + i], word[12 + i], 0xDD);
  }
  for (int i = 0; i < 4; ++i) {
    word[i] = _mm512_shuffle_i32x4(half[i], half[8 + i], 0x88);
    word[4 + i] = _mm512_shuffle_i32x4(half[4 + i], half[12 + i], 0x88);
    word[8 + i] = _mm512_shuffle_i32x4(half[i], half[8 + i], 0xDD);
    word[12 + i] = _mm512_shuffle_i32x4(half[4 + i], half[12 + i], 0xDD);
  }
}

/// An operand as B tiles. Tile (group, step) holds `width` tokens: pair k of columns of token
/// n is word k * width + n. Tokens and columns that do not exist are zero.
struct PackedOperand {
  const char* tiles;
  int width;                // tokens of a tile that are computed: 1, 4, 8 or 16
  std::size_t tile_bytes;   // from one step of 32 columns to the next
  std::size_t group_bytes;  // from one group of 16 tokens to the next
};

/// Packs operand [num_tokens, latent] into `scratch`, which grows where it must and which `tiles` points into.
MOETAIL_AMX inline PackedOperand pack(const Bf16* operand, int latent, int num_tokens,
                                      std::vector<CacheLine>& scratch) {
  const int num_steps = (latent + kStep - 1) / kStep;
  const int groups = (num_tokens + kTileTokens - 1) / kTileTokens;
  PackedOperand packed = {};
  packed.width = num_tokens == 1 ? 1 : num_tokens <= 4 ? 4 : num_tokens <= 8 ? 8 : 16;
  packed.tile_bytes = static_cast<std::size_t>(packed.width) * kStepBytes;
  packed.group_bytes = packed.tile_bytes * static_cast<std::size_t>(num_steps);
  // One line more, because the rows of a narrow tile are stored as whole registers, each over the end of the last one.
  const std::size_t lines = packed.group_bytes * static_cast<std::size_t>(groups) / sizeof(CacheLine) + 1;
  if (scratch.size() < lines) scratch.resize(lines);
  packed.tiles = scratch.front().bytes;

  const std::size_t row_bytes = static_cast<std::size_t>(packed.width) * 4;
  for (int group = 0; group < groups; ++group) {
    const int tokens = std::min(kTileTokens, num_tokens - group * kTileTokens);
    const Bf16* from =
        operand + static_cast<std::size_t>(group) * kTileTokens * static_cast<std::size_t>(latent);
    char* to = scratch.front().bytes + static_cast<std::size_t>(group) * packed.group_bytes;
    for (int c = 0; c < latent; c += kStep) {
      const int pairs = std::min(kStep, latent - c) / 2;
      const auto mask = static_cast<__mmask16>((1u << pairs) - 1u);
      __m512i word[16];
      for (int i = 0; i < 16; ++i) {
        word[i] = i < tokens
                      ? _mm512_maskz_loadu_epi32(
                            mask, from + static_cast<std::size_t>(i) * static_cast<std::size_t>(latent) + c)
                      : _mm512_setzero_si512();
      }
      if (packed.width == 1) {
        _mm512_storeu_si512(to, word[0]);
      } else {
        transpose(word);
        for (std::size_t i = 0; i < 16; ++i) _mm512_storeu_si512(to + i * row_bytes, word[i]);
      }
      to += packed.tile_bytes;
    }
  }
  return packed;
}

}  // namespace moetail::cpu::amx
