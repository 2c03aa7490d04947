// SPDX-License-Identifier: Apache-2.0
// AVX2 has no bf16 multiply, and unpacking both operands in the inner loop costs half of the multiply-adds. Here each is
// unpacked once: the operand for a whole dot, a few rows of weights at a time into L2. Tokens lie side by side in a
// vector, so the 16 lanes of the contract's sum are 16 loops, one after the other, and nothing is added across lanes.
#include "engine/cpu/arith_avx2_panel.hpp"

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "engine/cpu/arith_targets.hpp"
#include "engine/cpu/scratch.hpp"

#define MOETAIL_AVX2 __attribute__((target("avx2,fma")))

namespace moetail::cpu {
namespace {

// Steps of 32 columns unpacked at once: four pairs of one lane fill a vector.
constexpr int kQuad = 4;
constexpr int kVector = 8;
constexpr int kVectors = kPanelTokens / kVector;
// Columns taken at a time, and how many of them each lane has. A constant distance between the unpacked rows needs no
// register; a little more than a power of two, so that they do not fall into the same sets of L1.
constexpr int kChunk = 4096;
constexpr int kLaneColumns = kChunk / kDotLanes;
constexpr int kLanePitch = kLaneColumns + 16;

/// Unpacks columns 32j + 2i and 32j + 2i + 1 of `row` to lanes + i * lane_pitch + 2j, for all lanes i; those from
/// `columns` on, up to a multiple of 128, are +0. `columns` is at most kChunk.
MOETAIL_AVX2 void unpack(const Bf16* row, int columns, float* lanes, std::size_t lane_pitch) {
  constexpr int kBlock = kQuad * kDotStep;
  alignas(32) Bf16 tail[kBlock];
  for (int column = 0; column < columns; column += kBlock) {
    const Bf16* from = row + column;
    if (columns - column < kBlock) {
      std::fill_n(tail, kBlock, Bf16{0});
      std::memcpy(tail, from, static_cast<std::size_t>(columns - column) * sizeof(Bf16));
      from = tail;
    }
    float* to = lanes + 2 * column / kDotStep;
    for (int quarter = 0; quarter < kDotLanes / 4; ++quarter) {
      __m128i step[kQuad];
      for (int i = 0; i < kQuad; ++i)
        step[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * kDotStep) + quarter);
      // A pair of columns is one 32-bit word; four steps of four lanes become four lanes of four steps.
      const __m128i low01 = _mm_unpacklo_epi32(step[0], step[1]),
                    high01 = _mm_unpackhi_epi32(step[0], step[1]);
      const __m128i low23 = _mm_unpacklo_epi32(step[2], step[3]),
                    high23 = _mm_unpackhi_epi32(step[2], step[3]);
      const __m128i lane[4] = {_mm_unpacklo_epi64(low01, low23), _mm_unpackhi_epi64(low01, low23),
                               _mm_unpacklo_epi64(high01, high23), _mm_unpackhi_epi64(high01, high23)};
      for (int i = 0; i < 4; ++i)
        _mm256_store_ps(to + static_cast<std::size_t>(quarter * 4 + i) * lane_pitch,
                        _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(lane[i]), 16)));
    }
  }
}

/// to[k * to_pitch + t] = from[t * from_pitch + k] for k and t below 8.
MOETAIL_AVX2 inline void transpose(const float* from, std::size_t from_pitch, float* to,
                                   std::size_t to_pitch) {
  __m256 row[kVector], pair[kVector], quad[kVector];
  for (int i = 0; i < kVector; ++i) row[i] = _mm256_load_ps(from + static_cast<std::size_t>(i) * from_pitch);
  for (int i = 0; i < kVector; i += 2) {
    pair[i] = _mm256_unpacklo_ps(row[i], row[i + 1]);
    pair[i + 1] = _mm256_unpackhi_ps(row[i], row[i + 1]);
  }
  for (int i = 0; i < kVector; i += 4) {
    quad[i] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0x44);
    quad[i + 1] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0xEE);
    quad[i + 2] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0x44);
    quad[i + 3] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_store_ps(to + static_cast<std::size_t>(i) * to_pitch,
                    _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x20));
    _mm256_store_ps(to + static_cast<std::size_t>(i + 4) * to_pitch,
                    _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x31));
  }
}

/// sums[r][t] += the sum over k of rows[r][k] * tokens[k][t], by fused multiply-adds in order of k, for R rows.
template <int R>
MOETAIL_AVX2 inline void add_lane(const float (*rows)[kLanePitch], const float* tokens, int columns,
                                  float* sums) {
  __m256 sum[R][kVectors];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm256_load_ps(sums + (r * kVectors + v) * kVector);
  for (int k = 0; k < columns; ++k) {
    __m256 x[kVectors];
    for (int v = 0; v < kVectors; ++v) x[v] = _mm256_load_ps(tokens + (k * kVectors + v) * kVector);
    for (int r = 0; r < R; ++r) {
      const __m256 weight = _mm256_broadcast_ss(rows[r] + k);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm256_fmadd_ps(weight, x[v], sum[r][v]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < kVectors; ++v) _mm256_store_ps(sums + (r * kVectors + v) * kVector, sum[r][v]);
}

/// A dot of at most kPanelTokens tokens.
class Panel {
 public:
  MOETAIL_AVX2 Panel(const Bf16* operand, int latent, int num_tokens)
      : latent_(latent), num_tokens_(num_tokens) {
    static thread_local Scratch<float> tokens, rows;
    const std::size_t chunks = static_cast<std::size_t>((latent + kChunk - 1) / kChunk);
    tokens_ = tokens.get(chunks * kChunkTokens);
    constexpr std::size_t kTokenLanes = std::size_t{kDotLanes} * kLanePitch;
    rows_ = reinterpret_cast<Rows*>(
        rows.get(std::max(kDotLanes * kRows, kDotLanes * kTokens) * std::size_t{kLanePitch}));
    float* unpacked = rows_[0][0];
    std::fill_n(unpacked, kTokens * kTokenLanes, 0.0f);  // tokens that are not there
    for (int first = 0; first < latent; first += kChunk) {
      const int columns = std::min(kChunk, latent - first);
      for (int t = 0; t < num_tokens; ++t)
        unpack(operand + static_cast<std::size_t>(t) * static_cast<std::size_t>(latent) + first, columns,
               unpacked + static_cast<std::size_t>(t) * kTokenLanes, kLanePitch);
      for (int lane = 0; lane < kDotLanes; ++lane)
        for (int k = 0; k < lane_columns(columns); k += kVector)
          for (int v = 0; v < kVectors; ++v)
            transpose(unpacked + static_cast<std::size_t>(v * kVector) * kTokenLanes +
                          static_cast<std::size_t>(lane * kLanePitch + k),
                      kTokenLanes, tokens_of(first, lane) + k * kTokens + v * kVector, kTokens);
    }
  }

  MOETAIL_AVX2 void run(const Bf16* weights, int num_rows, float* dot, int dot_pitch) const {
    const auto pitch = static_cast<std::size_t>(latent_);
    int row = 0;
    for (; row + kRows <= num_rows; row += kRows) {
      const Bf16* block = weights + static_cast<std::size_t>(row) * pitch;
      sum_rows<kRows>(block, row + 2 * kRows <= num_rows ? block + kRows * pitch : nullptr, dot + row,
                      dot_pitch);
    }
    for (; row < num_rows; ++row)
      sum_rows<1>(weights + static_cast<std::size_t>(row) * pitch, nullptr, dot + row, dot_pitch);
  }

 private:
  static constexpr int kTokens = kPanelTokens;
  static constexpr int kRows = 6;  // twelve of AVX2's sixteen registers are sums
  static constexpr std::size_t kChunkTokens = std::size_t{kDotLanes} * kLaneColumns * kTokens;
  using Rows = float[kRows][kLanePitch];  // of one lane

  static constexpr int lane_columns(int columns) { return (columns + kDotStep - 1) / kDotStep * 2; }
  float* tokens_of(int first_column, int lane) const {
    return tokens_ + static_cast<std::size_t>(first_column / kChunk) * kChunkTokens +
           static_cast<std::size_t>(lane) * kLaneColumns * kTokens;
  }

  /// R rows. `next`: as many to take from memory meanwhile, or null.
  template <int R>
  MOETAIL_AVX2 void sum_rows(const Bf16* weights, const Bf16* next, float* dot, int dot_pitch) const {
    const auto pitch = static_cast<std::size_t>(latent_);
    alignas(32) float sums[kDotLanes][R * kTokens] = {};
    for (int first = 0; first < latent_; first += kChunk) {
      const int columns = std::min(kChunk, latent_ - first);
      for (int r = 0; r < R; ++r)
        unpack(weights + static_cast<std::size_t>(r) * pitch + first, columns, rows_[0][r],
               kRows * kLanePitch);
      for (int lane = 0; lane < kDotLanes; ++lane) {
        if (next != nullptr) fetch(next + first, R, columns, lane);
        add_lane<R>(rows_[lane], tokens_of(first, lane), lane_columns(columns), sums[lane]);
      }
    }
    // The halving order of the contract: lane i with i + 8, then + 4, + 2, + 1.
    for (int half = kDotLanes / 2; half > 0; half /= 2) {
      for (int lane = 0; lane < half; ++lane)
        for (int i = 0; i < R * kTokens; ++i) sums[lane][i] += sums[lane + half][i];
    }
    for (int t = 0; t < num_tokens_; ++t)
      for (int r = 0; r < R; ++r)
        dot[static_cast<std::size_t>(t) * static_cast<std::size_t>(dot_pitch) + static_cast<std::size_t>(r)] =
            sums[0][r * kTokens + t];
  }

  /// Asks for part `lane` of `columns` columns of some rows, into L2: L1 is full of this lane's operands.
  MOETAIL_AVX2 void fetch(const Bf16* rows, int num_rows, int columns, int lane) const {
    constexpr int kLine = 64 / sizeof(Bf16);
    const int begin = columns * lane / kDotLanes, end = columns * (lane + 1) / kDotLanes;
    for (int r = 0; r < num_rows; ++r)
      for (int c = begin; c < end; c += kLine)
        _mm_prefetch(reinterpret_cast<const char*>(
                         rows + static_cast<std::size_t>(r) * static_cast<std::size_t>(latent_) + c),
                     _MM_HINT_T1);
  }

  int latent_;
  int num_tokens_;
  float* tokens_;
  Rows* rows_;
};

}  // namespace

void avx2_panel_dot(const Bf16* weights, const Bf16* operand, int latent, int num_rows, int num_tokens,
                    float* dot, int dot_pitch) {
  Panel(operand, latent, num_tokens).run(weights, num_rows, dot, dot_pitch);
}

}  // namespace moetail::cpu

#endif
