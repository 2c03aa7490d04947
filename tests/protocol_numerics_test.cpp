// SPDX-License-Identifier: Apache-2.0
// The numeric contract's small parts: rounding to bf16, the grouping of finalize, the order of ranks; and
// every name.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "protocol/fault.hpp"
#include "protocol/mode.hpp"
#include "protocol/numerics.hpp"
#include "protocol/site.hpp"

namespace moetail::protocol {
namespace {

// Round to nearest even by float64 arithmetic: in units of the last place of a bf16 of that size.
double rounded(double value) {
  if (value == 0 || std::isinf(value)) return value;
  int exponent = 0;
  std::frexp(value, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - 8, -133));
  const double result = std::nearbyint(value / unit) * unit;
  if (std::abs(result) >= 0x1p128) return std::copysign(std::numeric_limits<double>::infinity(), value);
  return result;
}

void check_rounding(u32 bits) {
  const float value = float_from_bits(bits);
  const u16 result = bf16_from_f32(value);
  if (std::isnan(value)) {
    ASSERT_EQ(result, 0x7FFF) << std::hex << bits;
    return;
  }
  const double expected = rounded(static_cast<double>(value));
  ASSERT_EQ(static_cast<double>(f32_from_bf16(result)), expected) << std::hex << bits;
  ASSERT_EQ(std::signbit(f32_from_bf16(result)), std::signbit(value)) << std::hex << bits;
}

TEST(ProtocolNumerics, RoundingAgreesWithFloat64ForEveryExponentTieAndNan) {
  ASSERT_EQ(std::fegetround(), FE_TONEAREST);
  // Every sign, exponent and bf16 mantissa, with what lies below: exact, just above, below, at and above a
  // tie, below the next.
  for (u32 high = 0; high <= 0xFFFFu; ++high)
    for (u32 low : {0u, 1u, 0x3333u, 0x7FFFu, 0x8000u, 0x8001u, 0xCCCCu, 0xFFFFu})
      check_rounding(high << 16 | low);
  for (u64 bits = 0; bits < (u64{1} << 32); bits += 2003) check_rounding(static_cast<u32>(bits));
}

TEST(ProtocolNumerics, RoundingByHand) {
  EXPECT_EQ(bf16_from_f32(1.0f), 0x3F80);
  EXPECT_EQ(bf16_from_f32(-0.0f), 0x8000);
  EXPECT_EQ(bf16_from_f32(float_from_bits(0x3F808000)), 0x3F80);  // a tie goes to the even neighbour
  EXPECT_EQ(bf16_from_f32(float_from_bits(0x3F818000)), 0x3F82);
  EXPECT_EQ(bf16_from_f32(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(bf16_from_f32(float_from_bits(0x7F7F7FFF)), 0x7F7F);  // the last number that stays finite
  EXPECT_EQ(bf16_from_f32(float_from_bits(0x00008000)), 0x0000);  // half of the least subnormal
  EXPECT_EQ(bf16_from_f32(float_from_bits(0x00008001)), 0x0001);
  EXPECT_EQ(bf16_from_f32(float_from_bits(0xFFFFFFFF)), 0x7FFF);
}

TEST(ProtocolNumerics, NoRoundingMakesHalfASentinel) {
  for (u32 high = 0; high <= 0xFFFFu; ++high)
    for (u32 low : {0u, 0x8000u, 0xFFFFu})
      ASSERT_NE(bf16_from_f32(float_from_bits(high << 16 | low)), 0xFFFF);
}

TEST(ProtocolNumerics, EveryBf16SurvivesFp32) {
  for (u32 bits = 0; bits <= 0xFFFFu; ++bits) {
    const float value = f32_from_bf16(static_cast<u16>(bits));
    ASSERT_EQ(bits_from_float(value), bits << 16);
    ASSERT_EQ(bf16_from_f32(value), std::isnan(value) ? kBf16Nan : bits);
  }
}

TEST(ProtocolNumerics, FinalizeGroupsCoverEveryRouteOnce) {
  for (i32 top_k = 1; top_k <= 64; ++top_k) {
    SCOPED_TRACE(top_k);
    std::multiset<i32> covered;
    EXPECT_EQ(finalize_group_begin(0, top_k), 0);
    for (i32 group = 0; group < kFinalizeGroups; ++group) {
      const i32 begin = finalize_group_begin(group, top_k), end = finalize_group_begin(group + 1, top_k);
      EXPECT_LE(begin, end);
      EXPECT_LE(end - begin, (top_k + 3) / 4);
      for (i32 k = begin; k < end; ++k) covered.insert(k);
    }
    EXPECT_EQ(covered.size(), static_cast<std::size_t>(top_k));
    for (i32 k = 0; k < top_k; ++k) EXPECT_EQ(covered.count(k), 1u) << k;
  }
}

TEST(ProtocolNumerics, GroupsMeetEvenWithEven) {
  // 2^24 + 1 is 2^24 in fp32: another order of the additions gives another sum.
  EXPECT_EQ(finalize_join(0x1p24f, 1.0f, -0x1p24f, 1.0f), 2.0f);  // (g0 + g2) + (g1 + g3)
  EXPECT_EQ(finalize_join(0x1p24f, -0x1p24f, 1.0f, 1.0f), 1.0f);  // 2^24 + (-2^24 + 1)
  EXPECT_EQ(finalize_join(0x1p24f, 1.0f, 1.0f, -0x1p24f), 1.0f);  // 2^24 + (1 - 2^24)
}

TEST(ProtocolNumerics, RanksAreSummedInRankOrder) {
  for (i32 ranks : {1, 2, 4, 8, 16})
    for (i32 rank = 0; rank < ranks; ++rank)
      for (i32 i = 0; i < ranks; ++i) EXPECT_EQ(sum_source(i, rank, ranks), i);
}

TEST(ProtocolNames, SitesAreNumberedAndNamedOnce) {
  std::set<std::string> names;
  for (int site = 0; site < kSites; ++site) {
    const std::string name = site_name(static_cast<Site>(site));
    EXPECT_NE(name, "?");
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_STREQ(site_name(static_cast<Site>(kSites)), "?");
  EXPECT_STREQ(site_name(Site::epoch), "epoch");
  EXPECT_STREQ(site_name(Site::latent_poll), "latent_poll");
  EXPECT_STREQ(site_name(Site::gather_poll), "gather_poll");
  EXPECT_STREQ(site_name(Site::consume_rearm), "consume_rearm");
  EXPECT_EQ(static_cast<int>(Site::consume_rearm), kSites - 1);
}

TEST(ProtocolNames, ModesFormsFaultsAndFields) {
  EXPECT_STREQ(mode_name(Mode::automatic), "auto");
  EXPECT_STREQ(mode_name(Mode::front), "front");
  EXPECT_STREQ(mode_name(Mode::front_poll), "front_poll");
  EXPECT_STREQ(mode_name(Mode::publish), "publish");
  EXPECT_STREQ(mode_name(Mode::twoshot), "twoshot");
  EXPECT_STREQ(mode_name(static_cast<Mode>(5)), "?");
  EXPECT_STREQ(form_name(Form::expanded), "rows");
  EXPECT_STREQ(form_name(Form::permuted), "permuted");
  EXPECT_STREQ(form_name(Form::partial), "partial");
  EXPECT_STREQ(form_name(Form::published), "published");
  EXPECT_STREQ(form_name(static_cast<Form>(9)), "?");
  std::set<std::string> names;
  for (u32 kind = 0; kind < 7; ++kind) names.insert(fault_kind_name(static_cast<FaultKind>(kind)));
  EXPECT_EQ(names.size(), 7u);
  EXPECT_EQ(names.count("?"), 0u);
  EXPECT_STREQ(fault_kind_name(static_cast<FaultKind>(7)), "?");
  names.clear();
  for (u32 field = 0; field < 5; ++field) names.insert(header_field_name(static_cast<HeaderField>(field)));
  EXPECT_EQ(names.size(), 5u);
  EXPECT_EQ(names.count("?"), 0u);
  EXPECT_STREQ(header_field_name(static_cast<HeaderField>(5)), "?");
}

}  // namespace
}  // namespace moetail::protocol
