// SPDX-License-Identifier: Apache-2.0
// The scalar target: the numeric contract in plain C++, for any machine. It is what a machine without vector fused
// multiply-adds gets too (x86 before AVX2), because std::fmaf is exact everywhere and a mul + add is not.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "engine/cpu/arith_targets.hpp"
#include "protocol/numerics.hpp"

namespace moetail::cpu {
namespace {

using protocol::bf16_from_f32;
using protocol::f32_from_bf16;

void finalize(const Bf16* const* rows, const float* weights, int top_k, int begin, int end, Bf16* out) {
  for (int c = begin; c < end; ++c) {
    float group_sum[protocol::kFinalizeGroups];
    for (int group = 0; group < protocol::kFinalizeGroups; ++group) {
      float sum = 0.0f;
      const int group_end = protocol::finalize_group_begin(group + 1, top_k);
      for (int k = protocol::finalize_group_begin(group, top_k); k < group_end; ++k) {
        if (rows[k] != nullptr) sum = std::fmaf(weights[k], f32_from_bf16(rows[k][c]), sum);
      }
      group_sum[group] = sum;
    }
    out[c] = bf16_from_f32(protocol::finalize_join(group_sum[0], group_sum[1], group_sum[2], group_sum[3]));
  }
}

void sum_rows(const Bf16* const* rows, int num_rows, int columns, float* sum) {
  for (int c = 0; c < columns; ++c) sum[c] = f32_from_bf16(rows[0][c]);
  for (int row = 1; row < num_rows; ++row) {
    for (int c = 0; c < columns; ++c) sum[c] += f32_from_bf16(rows[row][c]);
  }
}

float norm_operand(const float* x, const Bf16* gamma, int columns, Bf16* operand) {
  float square[protocol::kSquareLanes] = {};
  for (int c = 0; c < columns; ++c) {
    operand[c] = bf16_from_f32(f32_from_bf16(gamma[c]) * x[c]);
    float& lane = square[c % protocol::kSquareLanes];
    lane = std::fmaf(x[c], x[c], lane);
  }
  for (int half = protocol::kSquareLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) square[lane] += square[lane + half];
  }
  return square[0];
}

void finish(const float* dot, float scale, const float* shared, const Bf16* residual, int columns,
            Bf16* out) {
  for (int c = 0; c < columns; ++c) {
    float value = std::fmaf(dot[c], scale, shared[c]);
    if (residual != nullptr) value += f32_from_bf16(residual[c]);
    out[c] = bf16_from_f32(value);
  }
}

// The even column of a pair sits in the low half of its 32-bit word.
static_assert(std::endian::native == std::endian::little,
              "the scalar dot splits pairs of bf16 by their low half");

// sum[i] += w[2i] * x[2i], then += w[2i + 1] * x[2i + 1]. A product of two bf16 has at most 16 significant bits, so a
// multiply and an add round like one fused multiply-add wherever the product is within the normal range of fp32.
void dot_step(const Bf16* weights, const Bf16* operand, float* sum) {
  std::uint32_t w[kDotLanes];
  std::uint32_t x[kDotLanes];
  std::memcpy(w, weights, sizeof(w));
  std::memcpy(x, operand, sizeof(x));
  for (int lane = 0; lane < kDotLanes; ++lane) {
    const float even = protocol::float_from_bits(w[lane] << 16) * protocol::float_from_bits(x[lane] << 16);
    const float odd =
        protocol::float_from_bits(w[lane] & 0xFFFF0000u) * protocol::float_from_bits(x[lane] & 0xFFFF0000u);
    sum[lane] = (sum[lane] + even) + odd;
  }
}

void dot(const Bf16* weights, const Bf16* operand, int latent, int num_rows, int num_tokens, float* dot,
         int dot_pitch) {
  const int tail = latent % kDotStep;
  const int full = latent - tail;
  for (int row = 0; row < num_rows; ++row) {
    const Bf16* w = weights + static_cast<std::size_t>(row) * static_cast<std::size_t>(latent);
    for (int token = 0; token < num_tokens; ++token) {
      const Bf16* x = operand + static_cast<std::size_t>(token) * static_cast<std::size_t>(latent);
      float sum[kDotLanes] = {};
      for (int c = 0; c < full; c += kDotStep) dot_step(w + c, x + c, sum);
      if (tail != 0) {
        Bf16 w_tail[kDotStep] = {};
        Bf16 x_tail[kDotStep] = {};
        std::copy_n(w + full, tail, w_tail);
        std::copy_n(x + full, tail, x_tail);
        dot_step(w_tail, x_tail, sum);
      }
      for (int half = kDotLanes / 2; half > 0; half /= 2) {
        for (int lane = 0; lane < half; ++lane) sum[lane] += sum[lane + half];
      }
      dot[static_cast<std::size_t>(token) * static_cast<std::size_t>(dot_pitch) + row] = sum[0];
    }
  }
}

double spin(long rounds) {
  constexpr int kLanes = 32;
  float sum[kLanes] = {};
  const auto factor = static_cast<float>(rounds % 3);
  const auto addend = static_cast<float>(rounds % 2);
  for (long round = 0; round < rounds; ++round) {
    for (float& lane : sum) lane = lane * factor + addend;
  }
  volatile float keep = sum[0];
  static_cast<void>(keep);
  return 2.0 * kLanes * static_cast<double>(rounds);
}

constexpr Target kScalar = {{"scalar", finalize, sum_rows, norm_operand, dot, finish}, spin};

}  // namespace

const Target* scalar_target() {
  return &kScalar;
}

}  // namespace moetail::cpu
