// SPDX-License-Identifier: Apache-2.0
// Bit comparison, ulp distance and row reports: coordinates, values and text.
#include "verify/compare.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"
#include "verify/bound.hpp"

namespace moetail::verify {
namespace {

using testing::HasSubstr;

TEST(CompareBits, NamesTheFirstMismatchAndCountsAll) {
  std::vector<u16> expected(40, 0x3F80), seen(expected);
  EXPECT_TRUE(compare_bits(expected, seen, 8).passes());
  EXPECT_EQ(compare_bits(expected, seen, 8).text(), "40 elements equal");
  seen[29] = 0xBF80;
  seen[35] = 0;
  const BitReport report = compare_bits(expected, seen, 8, 3);
  EXPECT_FALSE(report.passes());
  EXPECT_EQ(report.mismatches, 2u);
  EXPECT_EQ(report.token, 3);
  EXPECT_EQ(report.column, 5);
  EXPECT_EQ(
      report.text(),
      "2 of 40 elements differ, first at rank 3 token 3 column 5: expected 0x3f80 (1), seen 0xbf80 (-1)");
}

TEST(CompareBits, SignsOfZeroDifferAndNansOnlyByRule) {
  const std::vector<u16> zero = {0x0000}, minus = {0x8000}, nan = {0x7FFF}, payload = {0xFFA1},
                         inf = {0x7F80};
  EXPECT_FALSE(compare_bits(zero, minus, 1, 0, NanRule::any_nan).passes());
  EXPECT_FALSE(compare_bits(nan, payload, 1).passes());
  EXPECT_TRUE(compare_bits(nan, payload, 1, 0, NanRule::any_nan).passes());
  EXPECT_FALSE(compare_bits(nan, inf, 1, 0, NanRule::any_nan).passes());
  const std::vector<float> f32 = {1.0f, NAN}, other = {1.0f, -NAN};
  EXPECT_TRUE(compare_bits(f32, other, 2, 0, NanRule::any_nan).passes());
  EXPECT_THAT(compare_bits(f32, other, 2).text(),
              HasSubstr("column 1: expected 0x7fc00000 (nan), seen 0xffc00000"));
}

TEST(CompareBits, NothingComparedIsNoPass) {
  EXPECT_FALSE(compare_bits(std::span<const u16>(), std::span<const u16>(), 4).passes());
  const std::vector<u16> four(4), six(6);
  EXPECT_THROW(compare_bits(four, six, 2), Error);
  EXPECT_THROW(compare_bits(six, six, 4), Error);
  EXPECT_THROW(compare_bits(six, six, 0), Error);
}

TEST(CompareRanks, NamesTheFirstRankThatDiffers) {
  std::vector<std::vector<u16>> out(4, std::vector<u16>(16, 0x4000));
  const auto report = [&] {
    const std::vector<std::span<const u16>> ranks(out.begin(), out.end());
    return compare_ranks(ranks, 8);
  };
  EXPECT_TRUE(report().passes());
  out[2][9] = 0x4001;
  out[3][1] = 0x4001;
  EXPECT_FALSE(report().passes());
  EXPECT_EQ(report().mismatches, 2u);
  EXPECT_THAT(report().text(), HasSubstr("rank 2 token 1 column 1"));
}

TEST(UlpDistance, CountsStepsAcrossZeroAndBinades) {
  EXPECT_EQ(ulp_distance_bf16(0x3F80, 0x3F80), 0);
  EXPECT_EQ(ulp_distance_bf16(0x3F7F, 0x3F80), 1);
  EXPECT_EQ(ulp_distance_bf16(0x0000, 0x8000), 0);
  EXPECT_EQ(ulp_distance_bf16(0x0001, 0x8001), 2);
  EXPECT_EQ(ulp_distance_bf16(0x7F7F, 0x7F80), 1);
  EXPECT_EQ(ulp_distance_bf16(0x7FFF, 0xFFC0), 0);
  EXPECT_EQ(ulp_distance_bf16(0x7FFF, 0x7F80), 65536);
}

TEST(HalfUlp, IsTheLargestErrorOfOneRounding) {
  EXPECT_EQ(half_ulp_bf16(1.0), 0x1p-8);
  EXPECT_EQ(half_ulp_bf16(-1.99), 0x1p-8);
  EXPECT_EQ(half_ulp_bf16(2.0), 0x1p-7);
  EXPECT_EQ(half_ulp_bf16(0x1p-126), 0x1p-134);
  EXPECT_EQ(half_ulp_bf16(0x1p-140), 0x1p-134);
  EXPECT_EQ(half_ulp_bf16(0.0), 0.0);
}

/// Two rows of eight columns in which W n + s is 2 everywhere; the rest of the facts as a wide row would have
/// them.
Expectation two_rows() {
  Expectation expectation;
  expectation.shape.hidden = 7168;
  expectation.batch = 2;
  for (i32 c = 0; c < 8; ++c) expectation.columns.push_back(16 + c);
  expectation.out.assign(16, 2.0);
  expectation.without_residual.assign(16, 2.0);
  expectation.rows.resize(2);
  return expectation;
}

TEST(CheckRows, ReportsTheWorstRowItsColumnAndTheBoundOfK3) {
  const Expectation expectation = two_rows();
  std::vector<u16> out(2 * 7168, 0x4000);
  RowReport report = check_rows(expectation, out);
  EXPECT_TRUE(report.passes());
  EXPECT_EQ(report.rows, 2);
  EXPECT_EQ(report.error, 0.0);
  EXPECT_DOUBLE_EQ(report.bound, kK3Limit);
  out[7168 + 19] = 0x4001;  // one step of 2^-6 in one of eight columns: 0.0156 / (2 * sqrt(8))
  report = check_rows(expectation, out, 5);
  EXPECT_TRUE(report.passes());
  EXPECT_DOUBLE_EQ(report.error, 0x1p-6 / std::sqrt(32.0));
  EXPECT_NEAR(report.ratio, 0.92, 0.01);
  out[7168 + 20] = 0x4001;
  report = check_rows(expectation, out, 5);
  EXPECT_FALSE(report.passes());
  EXPECT_EQ(report.failed_rows, 1);
  EXPECT_THAT(report.text(),
              HasSubstr("rank 5: 1 of 2 rows beyond the bound, worst at token 1: error 3.906e-03, bound "
                        "3.000e-03, largest at column 19: expected 2, seen 0x4001 (2.01562)"));
  EXPECT_THROW(check_rows(expectation, std::span(out).first(7168)), Error);
}

TEST(CheckRows, TwoshotAndResidualWidenTheBoundAsTheContractSays) {
  Expectation expectation = two_rows();
  const std::vector<u16> out(2 * 7168, 0x4000);
  expectation.twoshot = true;
  EXPECT_DOUBLE_EQ(check_rows(expectation, out).bound, kK3TwoshotLimit);
  expectation.twoshot = false;
  expectation.has_residual = true;
  for (double& value : expectation.without_residual) value = 0.5;
  EXPECT_DOUBLE_EQ(check_rows(expectation, out).bound, kK3Limit + 0x1p-9 * 4);
}

TEST(CheckRows, InfinityAndTheLargestNumbersMayMeetAtTheBorder) {
  Expectation expectation = two_rows();
  expectation.out[3] =
      0x1.ff8p127;  // rounds to infinity in bf16, or to the largest number with an allowed error
  std::vector<u16> out(2 * 7168, 0x4000);
  out[19] = 0x7F80;
  EXPECT_EQ(check_rows(expectation, out).wrong_class, 0u);
  out[19] = 0x7F7F;
  EXPECT_EQ(check_rows(expectation, out).wrong_class, 0u);
  out[19] = 0xFF80;
  EXPECT_EQ(check_rows(expectation, out).wrong_class, 1u);
  out[19] = 0x7FFF;
  EXPECT_THAT(check_rows(expectation, out).text(),
              HasSubstr("1 elements of the wrong class, first at token 0 column 19"));
}

}  // namespace
}  // namespace moetail::verify
