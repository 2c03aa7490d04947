// SPDX-License-Identifier: Apache-2.0
// The targets that Highway dispatches: AVX-512, AVX2 and NEON, from one text. This file is compiled once a target.
#include <algorithm>
#include <cstring>

#include "engine/cpu/arith_avx2_tile.hpp"
#include "engine/cpu/arith_targets.hpp"
#include "protocol/numerics.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/arith_highway.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // the targets, before everything else of Highway
#include <hwy/highway.h>

// One row a target that is offered. Highway insists on compiling its baseline (SSE2 on x86-64) too; that one has no
// fused multiply-add, so it gets no table. Scalable vectors (SVE) cannot stand in arrays, and those chips have NEON.
#if HWY_TARGET == HWY_AVX3
#define MOETAIL_ARITH_NAME "avx3"
#elif HWY_TARGET == HWY_AVX2
#define MOETAIL_ARITH_NAME "avx2"
#elif HWY_TARGET == HWY_NEON && HWY_NATIVE_FMA
#define MOETAIL_ARITH_NAME "neon"
#endif

#ifdef MOETAIL_ARITH_NAME
HWY_BEFORE_NAMESPACE();
namespace moetail::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes, so that the lane-wise sums have the same shape everywhere: 16 / Lanes registers hold one.
using Floats = hn::CappedTag<float, 16>;
using Eight = hn::CappedTag<float, 8>;  // for the last 8 columns
template <class D>
using Words = hn::Rebind<std::uint32_t, D>;
template <class D>
using Halves = hn::Rebind<std::uint16_t, D>;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(Floats()));
inline constexpr int kParts = 16 / kLanes;
static_assert(protocol::kSquareLanes == 16 && kDotLanes == 16 && 16 % kLanes == 0);

template <class D>
HWY_INLINE hn::Vec<D> load_bf16(D d, const Bf16* from) {
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(Words<D>(), hn::LoadU(Halves<D>(), from))));
}

/// protocol::bf16_from_f32 in every lane.
template <class D>
HWY_INLINE void store_bf16(D d, hn::Vec<D> value, Bf16* to) {
  const Words<D> words;
  const auto bits = hn::BitCast(words, value);
  const auto even = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(even, hn::Set(words, 0x7FFFu))));
  const auto is_nan = hn::RebindMask(words, hn::IsNaN(value));
  const auto clean = hn::IfThenElse(is_nan, hn::Set(words, std::uint32_t{protocol::kBf16Nan}), rounded);
  const hn::Rebind<std::int32_t, D>
      ints;  // the 16-bit values are non-negative, so the saturation does nothing
  hn::StoreU(hn::DemoteTo(Halves<D>(), hn::BitCast(ints, clean)), Halves<D>(), to);
  static_cast<void>(d);
}

/// Calls body(tag, column) for [begin, end), a multiple of 8 columns: full registers first, then the last eight.
template <class Body>
HWY_INLINE void for_columns(int begin, int end, const Body& body) {
  int c = begin;
  for (; c + kLanes <= end; c += kLanes) body(Floats(), c);
  for (; c < end; c += static_cast<int>(hn::MaxLanes(Eight()))) body(Eight(), c);
}

/// The halving order of the contract: lane i with i + 8, then + 4, + 2, + 1.
HWY_INLINE float halve(float* lane) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
  }
  return lane[0];
}

struct FinalizeInput {
  const Bf16* const* rows;
  const float* weights;
  int top_k;
};

/// `kVectors` registers of adjacent columns together, so that a row gives a whole cache line at a time.
template <int kVectors, class D>
HWY_INLINE void finalize_columns(D d, const FinalizeInput& in, int c, Bf16* out) {
  using V = hn::Vec<D>;
  V group_sum[protocol::kFinalizeGroups][kVectors];
  for (int group = 0; group < protocol::kFinalizeGroups; ++group) {
    V sum[kVectors];
    for (V& part : sum) part = hn::Zero(d);
    const int end = protocol::finalize_group_begin(group + 1, in.top_k);
    for (int k = protocol::finalize_group_begin(group, in.top_k); k < end; ++k) {
      if (in.rows[k] == nullptr) continue;
      const V weight = hn::Set(d, in.weights[k]);
      for (int v = 0; v < kVectors; ++v) {
        const int column = c + v * static_cast<int>(hn::MaxLanes(d));
        sum[v] = hn::MulAdd(weight, load_bf16(d, in.rows[k] + column), sum[v]);
      }
    }
    for (int v = 0; v < kVectors; ++v) group_sum[group][v] = sum[v];
  }
  for (int v = 0; v < kVectors; ++v) {
    const V joined =
        hn::Add(hn::Add(group_sum[0][v], group_sum[2][v]), hn::Add(group_sum[1][v], group_sum[3][v]));
    store_bf16(d, joined, out + c + v * static_cast<int>(hn::MaxLanes(d)));
  }
}

void finalize(const Bf16* const* rows, const float* weights, int top_k, int begin, int end, Bf16* out) {
  const FinalizeInput in = {rows, weights, top_k};
  constexpr int kVectors = 2;
  int c = begin;
  for (; c + kVectors * kLanes <= end; c += kVectors * kLanes)
    finalize_columns<kVectors>(Floats(), in, c, out);
  for_columns(c, end, [&](auto d, int column) HWY_ATTR { finalize_columns<1>(d, in, column, out); });
}

void sum_rows(const Bf16* const* rows, int num_rows, int columns, float* sum) {
  for_columns(0, columns, [&](auto d, int c) HWY_ATTR {
    auto total = load_bf16(d, rows[0] + c);
    for (int row = 1; row < num_rows; ++row) total = hn::Add(total, load_bf16(d, rows[row] + c));
    hn::StoreU(total, d, sum + c);
  });
}

float norm_operand(const float* x, const Bf16* gamma, int columns, Bf16* operand) {
  for_columns(0, columns, [&](auto d, int c) HWY_ATTR {
    store_bf16(d, hn::Mul(load_bf16(d, gamma + c), hn::LoadU(d, x + c)), operand + c);
  });
  const Floats d;
  hn::Vec<Floats> square[kParts];
  for (auto& part : square) part = hn::Zero(d);
  int c = 0;
  for (; c + 16 <= columns; c += 16) {
    for (int part = 0; part < kParts; ++part) {
      const auto value = hn::LoadU(d, x + c + part * kLanes);
      square[part] = hn::MulAdd(value, value, square[part]);
    }
  }
  float lane[16];
  for (int part = 0; part < kParts; ++part) hn::StoreU(square[part], d, lane + part * kLanes);
  const Eight eight;
  for (int i = 0; c < columns;
       c += static_cast<int>(hn::MaxLanes(eight)), i += static_cast<int>(hn::MaxLanes(eight))) {
    const auto value = hn::LoadU(eight, x + c);
    hn::StoreU(hn::MulAdd(value, value, hn::LoadU(eight, lane + i)), eight, lane + i);
  }
  return halve(lane);
}

void finish(const float* dot, float scale, const float* shared, const Bf16* residual, int columns,
            Bf16* out) {
  for_columns(0, columns, [&](auto d, int c) HWY_ATTR {
    auto value = hn::MulAdd(hn::LoadU(d, dot + c), hn::Set(d, scale), hn::LoadU(d, shared + c));
    if (residual != nullptr) value = hn::Add(value, load_bf16(d, residual + c));
    store_bf16(d, value, out + c);
  });
}

// The order of this dot, the same for all targets of this file and for scalar: lane i of 16 sums columns 32j + 2i and
// 32j + 2i + 1, in order of j and even before odd, by fused multiply-adds starting from +0; a last step of fewer than
// 32 columns is filled with zeros; then the lanes are halved pairwise.
struct Dot {
#if HWY_TARGET == HWY_AVX2  // 16 registers, two a sum
  static constexpr int kRows1 = 6, kRows2 = 3, kRows4 = 2;
#elif HWY_TARGET == HWY_NEON  // 32 registers, four a sum
  static constexpr int kRows1 = 6, kRows2 = 3, kRows4 = 1;
#else                         // 32 registers, one a sum
  static constexpr int kRows1 = 16, kRows2 = 12, kRows4 = 5;
#endif

  using V = hn::Vec<Floats>;

  static HWY_INLINE hn::Vec<Words<Floats>> load_pairs(const Bf16* from) {
    return hn::BitCast(Words<Floats>(), hn::LoadU(hn::Repartition<std::uint16_t, Floats>(), from));
  }
  static HWY_INLINE V even(hn::Vec<Words<Floats>> pairs) {
    return hn::BitCast(Floats(), hn::ShiftLeft<16>(pairs));
  }
  static HWY_INLINE V odd(hn::Vec<Words<Floats>> pairs) {
    return hn::BitCast(Floats(), hn::And(pairs, hn::Set(Words<Floats>(), 0xFFFF0000u)));
  }

  /// 32 columns of R rows and C tokens; the rows (tokens) lie `weight_pitch` (`operand_pitch`) elements apart.
  template <int R, int C, bool kAhead>
  static HWY_INLINE void step(const Bf16* weights, std::size_t weight_pitch, const Bf16* operand,
                              std::size_t operand_pitch, V (&sum)[R][C][kParts]) {
    for (int part = 0; part < kParts; ++part) {
      const int column = 2 * kLanes * part;
      V x_even[C];
      V x_odd[C];
      for (int t = 0; t < C; ++t) {
        const auto pairs = load_pairs(operand + static_cast<std::size_t>(t) * operand_pitch + column);
        x_even[t] = even(pairs);
        x_odd[t] = odd(pairs);
      }
      for (int r = 0; r < R; ++r) {
        const Bf16* from = weights + static_cast<std::size_t>(r) * weight_pitch + column;
        if (kAhead && part == 0) hwy::Prefetch(reinterpret_cast<const char*>(from) + kAheadBytes);
        const auto pairs = load_pairs(from);
        const V w_even = even(pairs);
        const V w_odd = odd(pairs);
        for (int t = 0; t < C; ++t) sum[r][t][part] = hn::MulAdd(w_even, x_even[t], sum[r][t][part]);
        for (int t = 0; t < C; ++t) sum[r][t][part] = hn::MulAdd(w_odd, x_odd[t], sum[r][t][part]);
      }
    }
  }

  template <int R, int C, bool kAhead>
  static void tile(const Bf16* weights, const Bf16* operand, int latent, float* dot, int dot_pitch) {
    const auto pitch = static_cast<std::size_t>(latent);
    V sum[R][C][kParts];
    for (auto& row : sum) {
      for (auto& token : row) {
        for (V& part : token) part = hn::Zero(Floats());
      }
    }
    const int tail = latent % kDotStep;
    const int full = latent - tail;
    for (int c = 0; c < full; c += kDotStep) step<R, C, kAhead>(weights + c, pitch, operand + c, pitch, sum);
    if (tail != 0) {
      Bf16 w_tail[R][kDotStep] = {};
      Bf16 x_tail[C][kDotStep] = {};
      const std::size_t tail_bytes = static_cast<std::size_t>(tail) * sizeof(Bf16);
      for (std::size_t r = 0; r < R; ++r) std::memcpy(w_tail[r], weights + r * pitch + full, tail_bytes);
      for (std::size_t t = 0; t < C; ++t) std::memcpy(x_tail[t], operand + t * pitch + full, tail_bytes);
      step<R, C, false>(w_tail[0], kDotStep, x_tail[0], kDotStep, sum);
    }
    for (int r = 0; r < R; ++r) {
      for (int t = 0; t < C; ++t) {
        float lane[kDotLanes];
        for (int part = 0; part < kParts; ++part) hn::StoreU(sum[r][t][part], Floats(), lane + part * kLanes);
        dot[static_cast<std::size_t>(t) * static_cast<std::size_t>(dot_pitch) + static_cast<std::size_t>(r)] =
            halve(lane);
      }
    }
  }
};

void dot(const Bf16* weights, const Bf16* operand, int latent, int num_rows, int num_tokens, float* dot,
         int dot_pitch) {
#if HWY_TARGET == HWY_AVX2
  if (num_tokens >= kFewestTileTokens && num_rows >= kTileRows)
    return avx2_tile_dot(weights, operand, latent, num_rows, num_tokens, dot, dot_pitch);
#endif
  TileCover<Dot>(weights, operand, latent, num_rows, num_tokens, dot, dot_pitch).run();
}

double spin(long rounds) {
  constexpr int kSums = 12;
  const Floats d;
  hn::Vec<Floats> sum[kSums];
  for (auto& part : sum) part = hn::Zero(d);
  const auto factor = hn::Set(d, static_cast<float>(rounds & 1));
  for (long round = 0; round < rounds; ++round) {
    for (auto& part : sum) part = hn::MulAdd(factor, factor, part);
  }
  for (int i = 1; i < kSums; ++i) sum[0] = hn::Add(sum[0], sum[i]);
  volatile float keep = hn::GetLane(sum[0]);
  static_cast<void>(keep);
  return 2.0 * kSums * kLanes * static_cast<double>(rounds);
}

constexpr Target kTarget = {{MOETAIL_ARITH_NAME, finalize, sum_rows, norm_operand, dot, finish}, spin};

}  // namespace moetail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#undef MOETAIL_ARITH_NAME
#endif  // MOETAIL_ARITH_NAME

#if HWY_ONCE
namespace moetail::cpu {

std::vector<const Target*> highway_targets() {
  std::vector<const Target*> found;
#if HWY_TARGETS & HWY_AVX3
  if (hwy::SupportedTargets() & HWY_AVX3) found.push_back(&N_AVX3::kTarget);
#endif
#if HWY_TARGETS & HWY_AVX2
  if (hwy::SupportedTargets() & HWY_AVX2) found.push_back(&N_AVX2::kTarget);
#endif
#if HWY_TARGETS & HWY_NEON
  if (hwy::SupportedTargets() & HWY_NEON) found.push_back(&N_NEON::kTarget);
#endif
  return found;
}

}  // namespace moetail::cpu
#endif  // HWY_ONCE
