// SPDX-License-Identifier: Apache-2.0
// The oracle's inner loops. Float64 sums differ in their last bit between targets; the finalized partial does
// not.
#include "verify/oracle_kernel.hpp"

#include <algorithm>

#include "protocol/numerics.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "verify/oracle_kernel.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace moetail::verify::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using protocol::u16;

// Eight columns at most, so that every row is whole vectors.
using DoubleTag = hn::CappedTag<double, 8>;

HWY_ATTR inline hn::Vec<DoubleTag> LoadBf16(DoubleTag d, const u16* from) {
  const hn::Rebind<float, DoubleTag> df;
  const hn::Rebind<protocol::u32, DoubleTag> du;
  const hn::Rebind<u16, DoubleTag> d16;
  const auto bits = hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(d16, from)));
  return hn::PromoteTo(d, hn::BitCast(df, bits));
}

// Two rows by four tokens: eight sums in flight hide the latency of the multiply-add and fit 16 registers.
HWY_ATTR inline void DotBlock(const u16* w0, const u16* w1, int latent, const double* operand, int num_tokens,
                              double* dot, long pitch, bool both) {
  const DoubleTag d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const double* n0 = operand;
  const double* n1 = num_tokens > 1 ? operand + latent : operand;
  const double* n2 = num_tokens > 2 ? operand + 2L * latent : operand;
  const double* n3 = num_tokens > 3 ? operand + 3L * latent : operand;
  auto a0 = hn::Zero(d), a1 = hn::Zero(d), a2 = hn::Zero(d), a3 = hn::Zero(d);
  auto b0 = hn::Zero(d), b1 = hn::Zero(d), b2 = hn::Zero(d), b3 = hn::Zero(d);
  for (int c = 0; c < latent; c += lanes) {
    const auto a = LoadBf16(d, w0 + c);
    const auto b = LoadBf16(d, w1 + c);
    const auto x0 = hn::LoadU(d, n0 + c), x1 = hn::LoadU(d, n1 + c);
    a0 = hn::MulAdd(a, x0, a0);
    b0 = hn::MulAdd(b, x0, b0);
    a1 = hn::MulAdd(a, x1, a1);
    b1 = hn::MulAdd(b, x1, b1);
    const auto x2 = hn::LoadU(d, n2 + c), x3 = hn::LoadU(d, n3 + c);
    a2 = hn::MulAdd(a, x2, a2);
    b2 = hn::MulAdd(b, x2, b2);
    a3 = hn::MulAdd(a, x3, a3);
    b3 = hn::MulAdd(b, x3, b3);
  }
  const auto store = [&](int t, hn::Vec<DoubleTag> sum_a, hn::Vec<DoubleTag> sum_b) HWY_ATTR {
    if (t >= num_tokens) return;
    dot[t * pitch] = hn::GetLane(hn::SumOfLanes(d, sum_a));
    if (both) dot[t * pitch + 1] = hn::GetLane(hn::SumOfLanes(d, sum_b));
  };
  store(0, a0, b0);
  store(1, a1, b1);
  store(2, a2, b2);
  store(3, a3, b3);
}

// Four tokens stay in the cache while the rows pass by.
HWY_ATTR void DotRows(const u16* const* rows, int num_rows, int latent, const double* operand, int num_tokens,
                      double* dot, long pitch) {
  for (int t = 0; t < num_tokens; t += 4) {
    for (int j = 0; j < num_rows; j += 2) {
      const bool both = j + 1 < num_rows;
      DotBlock(rows[j], both ? rows[j + 1] : rows[j], latent, operand + static_cast<long>(t) * latent,
               std::min(4, num_tokens - t), dot + t * pitch + j, pitch, both);
    }
  }
}

HWY_ATTR inline hn::Vec<DoubleTag> FiniteOrZero(DoubleTag d, hn::Vec<DoubleTag> v) {
  return hn::IfThenElseZero(hn::Lt(hn::Abs(v), hn::Set(d, 0x1p128)), v);
}

HWY_ATTR void AddColumnSquares(const u16* const* rows, int num_rows, int latent, double* squares) {
  const DoubleTag d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  for (int j = 0; j < num_rows; j += 2) {
    const bool both = j + 1 < num_rows;
    for (int c = 0; c < latent; c += lanes) {
      const auto a = FiniteOrZero(d, LoadBf16(d, rows[j] + c));
      auto sum = hn::MulAdd(a, a, hn::LoadU(d, squares + c));
      if (both) {
        const auto b = FiniteOrZero(d, LoadBf16(d, rows[j + 1] + c));
        sum = hn::MulAdd(b, b, sum);
      }
      hn::StoreU(sum, d, squares + c);
    }
  }
}

// Highway's MulAdd is two roundings on targets without the instruction; the builtin is one everywhere.
HWY_ATTR void FinalizeRow(const u16* const* rows, const float* weights, int top_k, int latent, u16* out) {
  constexpr int kBlock = 8;
  for (int begin = 0; begin < latent; begin += kBlock) {
    float sums[protocol::kFinalizeGroups][kBlock] = {};
    for (int group = 0; group < protocol::kFinalizeGroups; ++group) {
      float* sum = sums[group];
      const int end = protocol::finalize_group_begin(group + 1, top_k);
      for (int k = protocol::finalize_group_begin(group, top_k); k < end; ++k) {
        if (rows[k] == nullptr) continue;
        const float weight = weights[k];
        const u16* row = rows[k] + begin;
        for (int c = 0; c < kBlock; ++c)
          sum[c] = __builtin_fmaf(weight, protocol::f32_from_bf16(row[c]), sum[c]);
      }
    }
    for (int c = 0; c < kBlock; ++c)
      out[begin + c] =
          protocol::bf16_from_f32(protocol::finalize_join(sums[0][c], sums[1][c], sums[2][c], sums[3][c]));
  }
}

}  // namespace moetail::verify::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moetail::verify {

HWY_EXPORT(DotRows);
HWY_EXPORT(AddColumnSquares);
HWY_EXPORT(FinalizeRow);

void finalize_row(const protocol::u16* const* rows, const float* weights, int top_k, int latent,
                  protocol::u16* out) {
  HWY_DYNAMIC_DISPATCH(FinalizeRow)(rows, weights, top_k, latent, out);
}

void dot_rows(const protocol::u16* const* rows, int num_rows, int latent, const double* operand,
              int num_tokens, double* dot, long pitch) {
  HWY_DYNAMIC_DISPATCH(DotRows)(rows, num_rows, latent, operand, num_tokens, dot, pitch);
}

void add_column_squares(const protocol::u16* const* rows, int num_rows, int latent, double* squares) {
  HWY_DYNAMIC_DISPATCH(AddColumnSquares)(rows, num_rows, latent, squares);
}

}  // namespace moetail::verify
#endif
