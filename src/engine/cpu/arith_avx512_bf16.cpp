// SPDX-License-Identifier: Apache-2.0
// The avx512_bf16 target: a dot of vdpbf16ps, which Highway 1.0.3 does not offer; all else is the AVX-512 target's.
#include "engine/cpu/arith_targets.hpp"

#if defined(__x86_64__)

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push  // g++ 12 warns of its own _mm512_undefined_*
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif

#define MOETAIL_AVX512_BF16 __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx512bf16")))

namespace moetail::cpu {
namespace {

// The order of this dot: lane i of 16 takes columns 32j + 2i and 32j + 2i + 1 in one vdpbf16ps, in order of j, starting
// from +0; a last step of fewer than 32 columns is filled with zeros; then the lanes are halved pairwise, i with i + 8,
// then + 4, + 2, + 1. The instruction takes subnormal inputs for zero, flushes subnormal results to zero, and rounds
// after each of its two products; NaN and Inf come out as in fp32.
struct Dot {
  static constexpr int kRows1 = 16, kRows2 = 12, kRows4 = 5;

  template <int R, int C, bool kAhead>
  MOETAIL_AVX512_BF16 static void tile(const Bf16* weights, const Bf16* operand, int latent, float* dot,
                                       int dot_pitch) {
    const auto pitch = static_cast<std::size_t>(latent);
    __m512 sum[R][C];
    for (auto& row : sum) {
      for (__m512& token : row) token = _mm512_setzero_ps();
    }
    const int tail = latent % kDotStep;
    const int full = latent - tail;
    for (int c = 0; c < full; c += kDotStep) {
      __m512bh x[C];
      for (std::size_t t = 0; t < C; ++t) x[t] = (__m512bh)_mm512_loadu_si512(operand + t * pitch + c);
      for (std::size_t r = 0; r < R; ++r) {
        const Bf16* from = weights + r * pitch + c;
        if constexpr (kAhead) _mm_prefetch(reinterpret_cast<const char*>(from) + kAheadBytes, _MM_HINT_T0);
        const __m512bh w = (__m512bh)_mm512_loadu_si512(from);
        for (int t = 0; t < C; ++t) sum[r][t] = _mm512_dpbf16_ps(sum[r][t], w, x[t]);
      }
    }
    if (tail != 0) {
      const auto pairs = static_cast<__mmask16>((1u << (tail / 2)) - 1u);
      __m512bh x[C];
      for (std::size_t t = 0; t < C; ++t) {
        x[t] = (__m512bh)_mm512_maskz_loadu_epi32(pairs, operand + t * pitch + full);
      }
      for (std::size_t r = 0; r < R; ++r) {
        const __m512bh w = (__m512bh)_mm512_maskz_loadu_epi32(pairs, weights + r * pitch + full);
        for (int t = 0; t < C; ++t) sum[r][t] = _mm512_dpbf16_ps(sum[r][t], w, x[t]);
      }
    }
    for (std::size_t r = 0; r < R; ++r) {
      for (std::size_t t = 0; t < C; ++t) dot[t * static_cast<std::size_t>(dot_pitch) + r] = halve(sum[r][t]);
    }
  }

 private:
  MOETAIL_AVX512_BF16 static float halve(__m512 lanes) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps(lanes, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
};

void dot(const Bf16* weights, const Bf16* operand, int latent, int num_rows, int num_tokens, float* dot,
         int dot_pitch) {
  TileCover<Dot>(weights, operand, latent, num_rows, num_tokens, dot, dot_pitch).run();
}

MOETAIL_AVX512_BF16 double spin(long rounds) {
  constexpr int kSums = 12;
  __m512 sum[kSums];
  for (__m512& part : sum) part = _mm512_setzero_ps();
  const __m512bh factor = (__m512bh)_mm512_set1_epi32(static_cast<int>(rounds & 1));
  for (long round = 0; round < rounds; ++round) {
    for (__m512& part : sum) part = _mm512_dpbf16_ps(part, factor, factor);
  }
  for (int i = 1; i < kSums; ++i) sum[0] = _mm512_add_ps(sum[0], sum[i]);
  volatile float keep = _mm512_cvtss_f32(sum[0]);
  static_cast<void>(keep);
  return 2.0 * kSums * kDotStep * static_cast<double>(rounds);
}

}  // namespace

const Target* avx512_bf16_target() {
  static const std::optional<Target> target =
      __builtin_cpu_supports("avx512bf16") ? on_avx3("avx512_bf16", dot, spin) : std::nullopt;
  return target ? &*target : nullptr;
}

}  // namespace moetail::cpu

#else

namespace moetail::cpu {
const Target* avx512_bf16_target() {
  return nullptr;
}
}  // namespace moetail::cpu

#endif
