// SPDX-License-Identifier: Apache-2.0
// AVX2 has no bf16 multiply, so both operands are unpacked: the tokens once a dot, a row of weights once for four tokens. Eight
// of the sum's 16 lanes are taken at a time, so that three rows by four tokens of sums fit the registers; the other eight find
// the row in L1.
#include "engine/cpu/arith_avx2_tile.hpp"

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "engine/cpu/arith_targets.hpp"
#include "engine/cpu/scratch.hpp"

#define MOETAIL_AVX2 __attribute__((target("avx2,fma")))

namespace moetail::cpu {
namespace {

constexpr int kVector = 8;  // floats, or pairs of bf16
constexpr int kTileTokens = 4;
constexpr int kTileSums = kTileRows * kTileTokens * kDotLanes;
constexpr int kStepOperand =
    2 * kTileTokens * kVector;  // floats of one step and half: even columns, then odd ones
// Four unpacked tokens of so many columns, three rows and their sums fit in 32 KB of L1.
constexpr int kBlockColumns = 896;
// Rows that use a block of tokens before the next block comes from L2. Sums wait in memory meanwhile, 256 bytes a row and group.
constexpr int kBlockRows = 24;
// Tokens of one pass over the weights: 230 KB unpacked at Kimi K3's latent, in L2.
constexpr int kPassGroups = 4;

/// sums[r][t][0..8) += the products of one half of `steps` steps, even column before odd, by fused multiply-adds. `rows`: three
/// rows of bf16, `pitch` bytes apart; a step is 64 bytes of each, of which this half is the first 32. `operand`: [steps][2][4][8].
/// `next`: rows that are wanted in L1 soon, 32 bytes a step of each.
/// In assembly because it needs all 16 registers: GCC 12 either keeps a sum in memory or takes each operand from memory
/// three times, and is half as fast.
MOETAIL_AVX2 inline void add_half(const Bf16* rows, std::size_t pitch, const float* operand, long steps,
                                  float* sums, const Bf16* next) {
  // clang-format off
#define MOETAIL_TOKEN(offset, sum0, sum1, sum2)                \
  "vmovaps " #offset "(%[operand]), %%ymm15\n"                 \
  "vfmadd231ps %%ymm15, %%ymm12, %%ymm" #sum0 "\n"             \
  "vfmadd231ps %%ymm15, %%ymm13, %%ymm" #sum1 "\n"             \
  "vfmadd231ps %%ymm15, %%ymm14, %%ymm" #sum2 "\n"
  asm volatile(
      "vmovaps    (%[sums]), %%ymm0\n" "vmovaps  64(%[sums]), %%ymm1\n"
      "vmovaps 128(%[sums]), %%ymm2\n" "vmovaps 192(%[sums]), %%ymm3\n"
      "vmovaps 256(%[sums]), %%ymm4\n" "vmovaps 320(%[sums]), %%ymm5\n"
      "vmovaps 384(%[sums]), %%ymm6\n" "vmovaps 448(%[sums]), %%ymm7\n"
      "vmovaps 512(%[sums]), %%ymm8\n" "vmovaps 576(%[sums]), %%ymm9\n"
      "vmovaps 640(%[sums]), %%ymm10\n" "vmovaps 704(%[sums]), %%ymm11\n"
      ".p2align 5\n"
      "1:\n"
      "vmovdqu (%[rows]), %%ymm12\n"
      "vmovdqu (%[rows],%[pitch]), %%ymm13\n"
      "vmovdqu (%[rows],%[pitch],2), %%ymm14\n"
      "vpslld $16, %%ymm12, %%ymm12\n"
      "vpslld $16, %%ymm13, %%ymm13\n"
      "vpslld $16, %%ymm14, %%ymm14\n"
      "prefetcht0 (%[next])\n"
      "prefetcht0 (%[next],%[pitch])\n"
      "prefetcht0 (%[next],%[pitch],2)\n"
      MOETAIL_TOKEN(0, 0, 4, 8)
      MOETAIL_TOKEN(32, 1, 5, 9)
      MOETAIL_TOKEN(64, 2, 6, 10)
      MOETAIL_TOKEN(96, 3, 7, 11)
      "vpxor %%xmm15, %%xmm15, %%xmm15\n"  // the even halves of the pairs become 0
      "vpblendw $0xAA, (%[rows]), %%ymm15, %%ymm12\n"
      "vpblendw $0xAA, (%[rows],%[pitch]), %%ymm15, %%ymm13\n"
      "vpblendw $0xAA, (%[rows],%[pitch],2), %%ymm15, %%ymm14\n"
      MOETAIL_TOKEN(128, 0, 4, 8)
      MOETAIL_TOKEN(160, 1, 5, 9)
      MOETAIL_TOKEN(192, 2, 6, 10)
      MOETAIL_TOKEN(224, 3, 7, 11)
      "add $64, %[rows]\n"
      "add $256, %[operand]\n"
      "add $32, %[next]\n"
      "dec %[steps]\n"
      "jnz 1b\n"
      "vmovaps %%ymm0,    (%[sums])\n" "vmovaps %%ymm1,  64(%[sums])\n"
      "vmovaps %%ymm2, 128(%[sums])\n" "vmovaps %%ymm3, 192(%[sums])\n"
      "vmovaps %%ymm4, 256(%[sums])\n" "vmovaps %%ymm5, 320(%[sums])\n"
      "vmovaps %%ymm6, 384(%[sums])\n" "vmovaps %%ymm7, 448(%[sums])\n"
      "vmovaps %%ymm8, 512(%[sums])\n" "vmovaps %%ymm9, 576(%[sums])\n"
      "vmovaps %%ymm10, 640(%[sums])\n" "vmovaps %%ymm11, 704(%[sums])\n"
      "vzeroupper\n"
      : [rows] "+r"(rows), [operand] "+r"(operand), [next] "+r"(next), [steps] "+r"(steps)
      : [pitch] "r"(pitch), [sums] "r"(sums)
      : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
        "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
#undef MOETAIL_TOKEN
  // clang-format on
  static_assert(kTileRows == 3 && kTileTokens == 4 && kDotLanes == 16 && kStepOperand * sizeof(float) == 256);
}

/// The halving order of the contract: lane i with i + 8, then + 4, + 2, + 1.
MOETAIL_AVX2 inline float halve(const float* lanes) {
  const __m256 eight = _mm256_add_ps(_mm256_load_ps(lanes), _mm256_load_ps(lanes + kVector));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/// A dot of up to kPassGroups * kTileTokens tokens.
class Pass {
 public:
  Pass(const Bf16* operand, int latent, int num_tokens)
      : latent_(latent), num_tokens_(num_tokens), num_groups_((num_tokens + kTileTokens - 1) / kTileTokens) {
    static thread_local Scratch<float> operands, sums;
    const int num_steps = (latent + kDotStep - 1) / kDotStep;
    operand_ = operands.get(static_cast<std::size_t>(num_steps * num_groups_) * 2 * kStepOperand);
    sums_ = sums.get(static_cast<std::size_t>(num_groups_ * kBlockRows / kTileRows) * kTileSums);
    for (int step = 0; step < num_steps; ++step) unpack_step(operand, step);
  }

  MOETAIL_AVX2 void run(const Bf16* weights, int num_rows, float* dot, int dot_pitch) const {
    for (int row = 0; row < num_rows; row += kBlockRows) {
      // The last tile of a shard may do rows of the one before it once more: a row's bits do not depend on its tile.
      const int rows = std::min(kBlockRows, num_rows - row);
      const int tiles = (rows + kTileRows - 1) / kTileRows;
      std::fill_n(sums_, static_cast<std::size_t>(tiles * num_groups_) * kTileSums, 0.0f);
      for (int column = 0; column < latent_; column += columns_at(column))
        add_block(weights, num_rows, row, tiles, column);
      for (int tile = 0; tile < tiles; ++tile)
        for (int token = 0; token < num_tokens_; ++token)
          for (int r = 0; r < kTileRows; ++r)
            dot[static_cast<std::size_t>(token) * static_cast<std::size_t>(dot_pitch) +
                static_cast<std::size_t>(first_row(row, tile, num_rows) + r)] =
                halve(sums_of(tile, token / kTileTokens) +
                      (r * kTileTokens + token % kTileTokens) * kDotLanes);
    }
  }

 private:
  static int first_row(int block, int tile, int num_rows) {
    return std::min(block + tile * kTileRows, num_rows - kTileRows);
  }
  /// Columns of the block that begins at `column`: whole steps, or the last step's few.
  int columns_at(int column) const {
    const int left = latent_ - column;
    return left < kDotStep ? left : std::min(kBlockColumns, left / kDotStep * kDotStep);
  }
  float* sums_of(int tile, int group) const {
    return sums_ + static_cast<std::size_t>(tile * num_groups_ + group) * kTileSums;
  }
  /// Operands of a group from `column` on, in a block of `steps` steps: first one half of all of them, then the other.
  float* operand_of(int column, int steps, int group, int half) const {
    const int step = column / kDotStep;
    return operand_ + (static_cast<std::size_t>(step * num_groups_) * 2 +
                       static_cast<std::size_t>((group * 2 + half) * steps)) *
                          kStepOperand;
  }

  MOETAIL_AVX2 void unpack_step(const Bf16* operand, int step) const {
    const int column = step * kDotStep, columns = std::min(kDotStep, latent_ - column);
    const int block = column / kBlockColumns * kBlockColumns;
    // A last step of fewer columns is a block of its own.
    const int begin = columns < kDotStep ? column : block,
              steps = (columns_at(begin) + kDotStep - 1) / kDotStep;
    const __m256i odd_columns = _mm256_set1_epi32(static_cast<int>(0xFFFF0000u));
    for (int token = 0; token < num_groups_ * kTileTokens; ++token) {
      alignas(32) Bf16 padded[kDotStep] = {};
      if (token < num_tokens_)
        std::memcpy(padded,
                    operand + static_cast<std::size_t>(token) * static_cast<std::size_t>(latent_) + column,
                    static_cast<std::size_t>(columns) * sizeof(Bf16));
      for (int half = 0; half < 2; ++half) {
        const __m256i pairs = _mm256_load_si256(reinterpret_cast<const __m256i*>(padded) + half);
        float* to = operand_of(begin, steps, token / kTileTokens, half) +
                    (step - begin / kDotStep) * kStepOperand + token % kTileTokens * kVector;
        _mm256_store_ps(to, _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)));
        _mm256_store_ps(to + kTileTokens * kVector,
                        _mm256_castsi256_ps(_mm256_and_si256(pairs, odd_columns)));
      }
    }
  }

  /// Some rows times one block of columns, all tokens.
  MOETAIL_AVX2 void add_block(const Bf16* weights, int num_rows, int row, int tiles, int column) const {
    const auto pitch = static_cast<std::size_t>(latent_);
    const int columns = columns_at(column);
    alignas(32) Bf16 padded[kTileRows][kDotStep] = {};
    for (int group = 0; group < num_groups_; ++group) {
      for (int tile = 0; tile < tiles; ++tile) {
        const Bf16* rows =
            weights + static_cast<std::size_t>(first_row(row, tile, num_rows)) * pitch + column;
        if (columns < kDotStep) {
          for (int r = 0; r < kTileRows; ++r)
            std::memcpy(padded[r], rows + static_cast<std::size_t>(r) * pitch,
                        static_cast<std::size_t>(columns) * sizeof(Bf16));
          add_tile(padded[0], kDotStep, padded[0], column, 1, group, tile);
          continue;
        }
        const Bf16* next = rows;  // later groups find the block in L2
        if (group == 0) {
          if (tile + 1 < tiles)
            next = weights + static_cast<std::size_t>(first_row(row, tile + 1, num_rows)) * pitch + column;
          else if (column + columns < latent_)
            next = weights + static_cast<std::size_t>(row) * pitch + column + columns;
          else if (row + kBlockRows < num_rows)
            next = weights + static_cast<std::size_t>(row + kBlockRows) * pitch;
        }
        add_tile(rows, pitch, next, column, columns / kDotStep, group, tile);
      }
    }
  }

  MOETAIL_AVX2 void add_tile(const Bf16* rows, std::size_t pitch, const Bf16* next, int column, int steps,
                             int group, int tile) const {
    for (int half = 0; half < 2; ++half)
      add_half(rows + half * kDotLanes, pitch * sizeof(Bf16), operand_of(column, steps, group, half), steps,
               sums_of(tile, group) + half * kVector, next + half * steps * kDotLanes);
  }

  int latent_;
  int num_tokens_;
  int num_groups_;
  float* operand_;
  float* sums_;
};

}  // namespace

void avx2_tile_dot(const Bf16* weights, const Bf16* operand, int latent, int num_rows, int num_tokens,
                   float* dot, int dot_pitch) {
  constexpr int kPassTokens = kPassGroups * kTileTokens;
  for (int token = 0; token < num_tokens; token += kPassTokens)
    Pass(operand + static_cast<std::size_t>(token) * static_cast<std::size_t>(latent), latent,
         std::min(kPassTokens, num_tokens - token))
        .run(weights, num_rows, dot + static_cast<std::size_t>(token) * static_cast<std::size_t>(dot_pitch),
             dot_pitch);
}

}  // namespace moetail::cpu

#endif
