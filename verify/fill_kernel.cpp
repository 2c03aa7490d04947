// SPDX-License-Identifier: Apache-2.0
// The generator's inner loop, compiled for every vector width and chosen at run time.
#include "verify/fill_kernel.hpp"

#include "protocol/numerics.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "verify/fill_kernel.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace moetail::verify::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_ATTR hn::Vec<D> Mix32(D d, hn::Vec<D> v) {
  v = hn::Mul(hn::Xor(v, hn::ShiftRight<16>(v)), hn::Set(d, 0x85EBCA6Bu));
  v = hn::Mul(hn::Xor(v, hn::ShiftRight<13>(v)), hn::Set(d, 0xC2B2AE35u));
  return hn::Xor(v, hn::ShiftRight<16>(v));
}

HWY_ATTR void FillBell(RunKey run, protocol::u32 first, protocol::i32 offset, float scale, protocol::u16* out,
                       std::size_t count) {
  const hn::CappedTag<protocol::u32, 16> d;
  const hn::Rebind<protocol::i32, decltype(d)> di;
  const hn::Rebind<float, decltype(d)> df;
  const hn::Rebind<protocol::u16, decltype(d)> d16;
  const std::size_t lanes = hn::Lanes(d);
  const auto half = hn::Set(d, 0xFFFFu);
  const auto shift = hn::Set(di, offset - 131070);
  const auto factor = hn::Set(df, scale);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto index = hn::Add(hn::Iota(d, 0), hn::Set(d, first + static_cast<protocol::u32>(i)));
    const auto mixed = Mix32(d, hn::Xor(index, hn::Set(d, run.a)));
    const auto u = Mix32(d, hn::Add(mixed, hn::Set(d, run.b)));
    const auto v = Mix32(d, hn::Xor(mixed, hn::Set(d, run.c)));
    const auto low = hn::Add(hn::And(u, half), hn::And(v, half));
    const auto sum = hn::Add(low, hn::Add(hn::ShiftRight<16>(u), hn::ShiftRight<16>(v)));
    const auto value = hn::Mul(hn::ConvertTo(df, hn::Add(hn::BitCast(di, sum), shift)), factor);
    const auto bits = hn::BitCast(d, value);
    const auto even = hn::Add(hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1u)), hn::Set(d, 0x7FFFu));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, even));
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, rounded)), d16, out + i);
  }
  for (; i < count; ++i) {
    const protocol::u32 mixed = mix32((first + static_cast<protocol::u32>(i)) ^ run.a);
    out[i] = bell_element(HashPair{mix32(mixed + run.b), mix32(mixed ^ run.c)}, offset, scale);
  }
}

}  // namespace moetail::verify::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moetail::verify {

HWY_EXPORT(FillBell);

void fill_bell(RunKey run, protocol::u32 first, protocol::i32 offset, float scale, protocol::u16* out,
               std::size_t count) {
  HWY_DYNAMIC_DISPATCH(FillBell)(run, first, offset, scale, out, count);
}

protocol::u16 bell_element(HashPair pair, protocol::i32 offset, float scale) {
  return protocol::bf16_from_f32(static_cast<float>(bell(pair) + offset) * scale);
}

}  // namespace moetail::verify
#endif
