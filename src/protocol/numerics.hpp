// SPDX-License-Identifier: Apache-2.0
// The numeric contract: bf16 conversion and the fixed order of every sum. docs/protocol.md states the whole
// contract.
#pragma once

#include "protocol/safeguards.hpp"
#include "protocol/words.hpp"

namespace moetail::protocol {

MOETAIL_FN float float_from_bits(u32 bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return __builtin_bit_cast(float, bits);
#endif
}

MOETAIL_FN u32 bits_from_float(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  return __builtin_bit_cast(u32, value);
#endif
}

inline constexpr u16 kBf16Nan = 0x7FFF;

MOETAIL_FN float f32_from_bf16(u16 bits) {
  return float_from_bits(static_cast<u32>(bits) << 16);
}

/// Round to nearest even; every NaN becomes 0x7FFF, so no rounding of ours ever makes half a sentinel word.
MOETAIL_FN u16 bf16_from_f32(float value) {
  const u32 bits = bits_from_float(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return kBf16Nan;
  return static_cast<u16>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// Finalize sums the K routes of a token in kFinalizeGroups runs of equal length. A run is summed in order of
// k by fused multiply-adds starting from +0, a dropped route being skipped; the runs meet as (g0 + g2) + (g1
// + g3). It is what four GPU lanes do with two exchange steps, and it depends on K alone.
inline constexpr i32 kFinalizeGroups = 4;

/// First route of run `group` out of `top_k` routes; run `group` ends where run `group + 1` begins.
MOETAIL_FN constexpr i32 finalize_group_begin(i32 group, i32 top_k) {
  const i32 length = (top_k + kFinalizeGroups - 1) / kFinalizeGroups;
  const i32 begin = group * length;
  return begin < top_k ? begin : top_k;
}

MOETAIL_FN constexpr float finalize_join(float g0, float g1, float g2, float g3) {
  return (g0 + g2) + (g1 + g3);
}

// The mean square of a row is summed in kSquareLanes interleaved partial sums (column c goes to sum c mod 16,
// in order of c, by fused multiply-adds starting from +0), halved pairwise: i with i + 8, then + 4, + 2, + 1.
inline constexpr i32 kSquareLanes = 16;

/// The source rank whose addend comes at place `i` of a sum over ranks: rank order 0 .. T-1, the same on
/// every rank. The safeguard's control begins with the summing rank itself.
MOETAIL_FN constexpr i32 sum_source(i32 i, i32 rank, i32 ranks) {
  return kSumsInRankOrder ? i : (i + rank) % ranks;
}

}  // namespace moetail::protocol
