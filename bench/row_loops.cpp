// SPDX-License-Identifier: Apache-2.0
// Compiled for every vector width and chosen at run time.
#include "bench/row_loops.hpp"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/row_loops.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace moetail::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Eight columns at most, so that every row is whole vectors.
using Floats = hn::CappedTag<float, 8>;
using Vector = hn::Vec<Floats>;
constexpr Floats kFloats;

HWY_ATTR inline int Lanes() {
  return static_cast<int>(hn::Lanes(kFloats));
}

HWY_ATTR inline Vector LoadBf16(const Bf16* from) {
  const hn::Rebind<std::uint32_t, Floats> words;
  const hn::Rebind<Bf16, Floats> halves;
  return hn::BitCast(kFloats, hn::ShiftLeft<16>(hn::PromoteTo(words, hn::LoadU(halves, from))));
}

// Round to nearest even; every NaN becomes 0x7FFF.
HWY_ATTR inline void StoreBf16(Vector value, Bf16* to) {
  const hn::Rebind<std::uint32_t, Floats> words;
  const hn::Rebind<std::int32_t, Floats> ints;
  const hn::Rebind<Bf16, Floats> halves;
  const auto bits = hn::BitCast(words, value);
  const auto even = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(even, hn::Set(words, 0x7FFFu))));
  const auto clean =
      hn::IfThenElse(hn::RebindMask(words, hn::Eq(value, value)), rounded, hn::Set(words, 0x7FFFu));
  hn::StoreU(hn::DemoteTo(halves, hn::BitCast(ints, clean)), halves, to);
}

HWY_ATTR inline Vector SumOf(const Bf16* const* rows, int num_rows, int column) {
  auto sum = LoadBf16(rows[0] + column);
  for (int i = 1; i < num_rows; ++i) sum = hn::Add(sum, LoadBf16(rows[i] + column));
  return sum;
}

HWY_ATTR void SumRows(const Bf16* const* rows, int num_rows, int columns, float* sum) {
  for (int c = 0; c < columns; c += Lanes()) hn::StoreU(SumOf(rows, num_rows, c), kFloats, sum + c);
}

HWY_ATTR void RmsNormRow(const float* x, const Bf16* gamma, float eps, int columns, Bf16* out) {
  auto squares = hn::Zero(kFloats);
  for (int c = 0; c < columns; c += Lanes()) {
    const auto value = hn::LoadU(kFloats, x + c);
    squares = hn::MulAdd(value, value, squares);
  }
  const float sum = hn::GetLane(hn::SumOfLanes(kFloats, squares));
  const auto scale = hn::Set(kFloats, 1.0f / std::sqrt(sum / static_cast<float>(columns) + eps));
  for (int c = 0; c < columns; c += Lanes())
    StoreBf16(hn::Mul(LoadBf16(gamma + c), hn::Mul(hn::LoadU(kFloats, x + c), scale)), out + c);
}

HWY_ATTR void AddRows(const float* product, const Bf16* const* rows, int num_rows, const Bf16* residual,
                      int columns, Bf16* out) {
  for (int c = 0; c < columns; c += Lanes()) {
    auto sum = hn::Add(hn::LoadU(kFloats, product + c), SumOf(rows, num_rows, c));
    if (residual != nullptr) sum = hn::Add(sum, LoadBf16(residual + c));
    StoreBf16(sum, out + c);
  }
}

}  // namespace moetail::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moetail::bench {

HWY_EXPORT(SumRows);
HWY_EXPORT(RmsNormRow);
HWY_EXPORT(AddRows);

void sum_rows(const Bf16* const* rows, int num_rows, int columns, float* sum) {
  HWY_DYNAMIC_DISPATCH(SumRows)(rows, num_rows, columns, sum);
}

void rms_norm_row(const float* x, const Bf16* gamma, float eps, int columns, Bf16* out) {
  HWY_DYNAMIC_DISPATCH(RmsNormRow)(x, gamma, eps, columns, out);
}

void add_rows(const float* product, const Bf16* const* rows, int num_rows, const Bf16* residual, int columns,
              Bf16* out) {
  HWY_DYNAMIC_DISPATCH(AddRows)(product, rows, num_rows, residual, columns, out);
}

}  // namespace moetail::bench
#endif
