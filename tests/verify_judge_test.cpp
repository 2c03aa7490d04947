// SPDX-License-Identifier: Apache-2.0
// Can the judge fail? Faults of the kinds that shipped elsewhere must exceed the bound, at Kimi K3's sizes
// and at small ones, while an honest fp32 and bf16 implementation stays below it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <ostream>
#include <string>
#include <tuple>

#include "verify/bound.hpp"
#include "verify/compare.hpp"
#include "verify/emulate.hpp"
#include "verify/exact.hpp"
#include "verify/inputs.hpp"

namespace moetail::verify {
namespace {

struct Size {
  const char* name;
  int hidden, latent, ranks, top_k, batch;
};

void PrintTo(const Size& size, std::ostream* out) {
  *out << size.name;
}

Shape shape_of(const Size& size) {
  Shape shape;
  shape.hidden = size.hidden;
  shape.latent = size.latent;
  shape.ranks = size.ranks;
  shape.top_k = size.top_k;
  return shape;
}

/// An honest call, its expectation, and copies of its inputs for a test to spoil.
class NegativeControl : public testing::TestWithParam<std::tuple<Size, bool>> {
 protected:
  NegativeControl() : size_(std::get<0>(GetParam())), twoshot_(std::get<1>(GetParam())) {
    options_.form = Form::permuted;
    options_.residual = true;
    options_.dropped_share = 0.3;
    inputs_ = make_inputs(shape_, size_.batch, 21, 4, options_);
    layer_ = make_layer(shape_, 21, 4);
  }

  void TearDown() override { std::printf("weakest fault: %.1f times the bound\n", weakest_); }

  Problem problem() const { return make_problem(shape_, size_.batch, twoshot_, inputs_, layer_); }

  /// Expectation of the untouched inputs; asks that an honest implementation passes.
  void set_up_expectation() {
    expectation_ = expect(problem());
    honest_ = emulate(problem());
    const RowReport report = check_rows(expectation_, honest_);
    ASSERT_TRUE(report.passes()) << report.text();
  }

  /// The same call with its routed inputs turned into partials, which a test may then spoil.
  std::vector<RankInput> with_partials(std::vector<u16>& partials) const {
    partials = exact_partials(problem());
    std::vector<RankInput> ranks(inputs_.ranks);
    for (int r = 0; r < size_.ranks; ++r) {
      ranks[r].form = Form::partial;
      ranks[r].partial = partials.data() + static_cast<std::size_t>(r * size_.batch) * size_.latent;
    }
    return ranks;
  }

  /// Judges a spoiled output, and remembers how far beyond the bound it was.
  RowReport check(const std::vector<u16>& out) {
    const RowReport report = check_rows(expectation_, out);
    if (report.failed_rows > 0) weakest_ = std::min(weakest_, report.ratio);
    return report;
  }
  RowReport judge(const Problem& spoiled) { return check(emulate(spoiled)); }
  RowReport judge_ranks(const std::vector<RankInput>& ranks) {
    Problem spoiled = problem();
    spoiled.ranks = ranks;
    return judge(spoiled);
  }

  Size size_;
  bool twoshot_;
  Shape shape_ = shape_of(std::get<0>(GetParam()));
  InputOptions options_;
  CallInputs inputs_;
  LayerWeights layer_;
  Expectation expectation_;
  std::vector<u16> honest_;
  double weakest_ = std::numeric_limits<double>::infinity();
};

TEST_P(NegativeControl, LostOutputLine) {
  set_up_expectation();
  for (int line : {0, size_.hidden / 16, size_.hidden / 8 - 1})
    for (int token = 0; token < size_.batch; ++token) {
      std::vector<u16> out = honest_;
      const auto begin = out.begin() + token * size_.hidden + line * 8;
      std::fill(begin, begin + 8, u16{0});
      const RowReport report = check(out);
      EXPECT_EQ(report.failed_rows, 1) << report.text();
      EXPECT_EQ(report.worst_token, token);
      EXPECT_EQ(report.worst_column / 8, line);
    }
}

TEST_P(NegativeControl, StaleOutputLine) {
  set_up_expectation();
  const CallInputs before = make_inputs(shape_, size_.batch, 22, 3, options_);
  const std::vector<u16> stale = emulate(make_problem(shape_, size_.batch, twoshot_, before, layer_));
  std::vector<u16> out = honest_;
  std::copy(stale.begin() + 16, stale.begin() + 24, out.begin() + 16);
  EXPECT_EQ(check(out).failed_rows, 1);
}

TEST_P(NegativeControl, LostOrStaleLatentLineOfOneRank) {
  set_up_expectation();
  std::vector<u16> partials;
  const std::vector<RankInput> ranks = with_partials(partials);
  EXPECT_TRUE(judge_ranks(ranks).passes());
  const std::vector<u16> good = partials;
  const int rank_pitch = size_.batch * size_.latent;
  for (int line : {0, size_.latent / 8 - 1}) {
    const auto begin = partials.begin() + (size_.ranks - 1) * rank_pitch + line * 8;
    std::fill(begin, begin + 8, u16{0});
    EXPECT_EQ(judge_ranks(ranks).failed_rows, 1) << judge_ranks(ranks).text();
    std::copy(good.begin() + size_.latent + line * 8, good.begin() + size_.latent + line * 8 + 8, begin);
    EXPECT_EQ(judge_ranks(ranks).failed_rows, 1) << judge_ranks(ranks).text();
    partials = good;
  }
}

TEST_P(NegativeControl, LostSharedLineOfOneRank) {
  set_up_expectation();
  auto& shared = inputs_.arrays[size_.ranks - 1].shared;
  std::fill(shared.end() - 8, shared.end(), u16{0});
  const RowReport report = judge(problem());
  EXPECT_EQ(report.failed_rows, 1) << report.text();
  EXPECT_EQ(report.worst_token, size_.batch - 1);
}

TEST_P(NegativeControl, MissingRank) {
  set_up_expectation();
  std::vector<u16> partials;
  const std::vector<RankInput> ranks = with_partials(partials);
  const std::size_t pitch = static_cast<std::size_t>(size_.batch) * size_.latent;
  std::fill_n(partials.begin() + (size_.ranks - 1) * pitch, pitch, u16{0});
  EXPECT_EQ(judge_ranks(ranks).failed_rows, size_.batch);
  std::fill(inputs_.arrays[0].shared.begin(), inputs_.arrays[0].shared.end(), u16{0});
  EXPECT_EQ(judge(problem()).failed_rows, size_.batch);
}

TEST_P(NegativeControl, SwappedTokens) {
  set_up_expectation();
  std::vector<u16> partials;
  const std::vector<RankInput> ranks = with_partials(partials);
  std::swap_ranges(partials.begin(), partials.begin() + size_.latent, partials.begin() + size_.latent);
  EXPECT_EQ(judge_ranks(ranks).failed_rows, 2) << "of one rank's latents";
  std::vector<u16> out = honest_;
  std::swap_ranges(out.begin(), out.begin() + size_.hidden, out.begin() + size_.hidden);
  EXPECT_EQ(check(out).failed_rows, 2) << "of the output";
}

TEST_P(NegativeControl, WrongGamma) {
  set_up_expectation();
  layer_.gamma = make_layer(shape_, 21, 5).gamma;
  EXPECT_EQ(judge(problem()).failed_rows, size_.batch);
  std::fill(layer_.gamma.begin(), layer_.gamma.end(), u16{0x3F80});
  EXPECT_EQ(judge(problem()).failed_rows, size_.batch);
}

TEST_P(NegativeControl, MissingResidual) {
  set_up_expectation();
  for (RankInput& rank : inputs_.ranks) rank.residual = nullptr;
  EXPECT_EQ(judge(problem()).failed_rows, size_.batch);
}

TEST_P(NegativeControl, DroppedRouteIsNotSkipped) {
  set_up_expectation();
  std::vector<i32>& map = inputs_.arrays[0].map;
  const auto dropped = std::find_if(map.begin(), map.end(), [](i32 row) { return row < 0; });
  ASSERT_NE(dropped, map.end());
  *dropped = 0;
  const RowReport report = judge(problem());
  EXPECT_EQ(report.failed_rows, 1) << report.text();
  EXPECT_EQ(report.worst_token, (dropped - map.begin()) / size_.top_k);
}

TEST_P(NegativeControl, RowsOfAnotherRoute) {
  set_up_expectation();
  std::vector<i32>& map = inputs_.arrays[size_.ranks - 1].map;
  std::reverse(map.begin(), map.begin() + size_.top_k);
  EXPECT_EQ(judge(problem()).failed_rows, 1);
}

/// Two addends have one sum: this control wants three ranks at least.
class RankOrderControl : public NegativeControl {};

TEST_P(RankOrderControl, RanksAddedInAnotherOrder) {
  std::vector<u16> partials;
  const std::vector<RankInput> ranks = with_partials(partials);
  // Ranks 0 and 2 cancel; rank 1 is added to the first of them and loses what lies below its spacing.
  const std::size_t pitch = static_cast<std::size_t>(size_.batch) * size_.latent;
  for (std::size_t i = 0; i < pitch; ++i) {
    partials[i] = static_cast<u16>(0x4B00u + i % 64);  // 2^23 and above: spacing 1
    partials[2 * pitch + i] = static_cast<u16>(partials[i] | 0x8000u);
  }
  Problem call = problem();
  call.ranks = ranks;
  expectation_ = expect(call, {}, RankSum::rank_order);
  const RowReport honest = check_rows(expectation_, emulate(call));
  EXPECT_TRUE(honest.passes()) << honest.text();
  std::vector<int> order(static_cast<std::size_t>(size_.ranks));
  for (int r = 0; r < size_.ranks; ++r) order[r] = r;
  std::swap(order[1], order[2]);
  EXPECT_EQ(check(emulate(call, order)).failed_rows, size_.batch);
}

constexpr Size kSizes[] = {  // all but the first have three ranks or more
    {"Small", 128, 64, 2, 4, 3},
    {"SmallFourRanks", 128, 64, 4, 4, 3},
    {"SixteenRanks", 256, 256, 16, 8, 2},
    {"AtFullSize", 7168, 3584, 8, 16, 2}};

std::string control_name(const testing::TestParamInfo<std::tuple<Size, bool>>& control) {
  return std::string(std::get<1>(control.param) ? "Twoshot" : "OneShot") + std::get<0>(control.param).name;
}

INSTANTIATE_TEST_SUITE_P(Sizes, NegativeControl, testing::Combine(testing::ValuesIn(kSizes), testing::Bool()),
                         control_name);
INSTANTIATE_TEST_SUITE_P(Sizes, RankOrderControl,
                         testing::Combine(testing::ValuesIn(kSizes + 1, std::end(kSizes)), testing::Bool()),
                         control_name);

struct Ratios {
  int rows = 0;
  double largest = 0, sum = 0, error = 0, lowest_bound = 1, highest_bound = 0;
};

/// Ratio error over bound of honest rows, over `seeds` calls that alternate residual, form and weight type.
Ratios honest_ratios(const Size& size, bool twoshot, int seeds) {
  Ratios ratios;
  for (int seed = 0; seed < seeds; ++seed) {
    InputOptions options;
    const Form forms[] = {Form::expanded, Form::permuted, Form::partial};
    options.form = forms[seed % 3];
    options.residual = seed % 2 == 1;
    options.weight_type = seed % 4 == 0 ? WeightType::bf16 : WeightType::fp32;
    const Shape shape = shape_of(size);
    const CallInputs inputs = make_inputs(shape, size.batch, 5000 + seed, 1, options);
    const LayerWeights layer = make_layer(shape, seed, 1);
    const Problem problem = make_problem(shape, size.batch, twoshot, inputs, layer);
    const RowReport report = check_rows(expect(problem), emulate(problem));
    EXPECT_TRUE(report.passes()) << size.name << " seed " << seed << ": " << report.text();
    ratios.rows += report.rows;
    ratios.sum += report.ratio;
    ratios.largest = std::max(ratios.largest, report.ratio);
    ratios.error = std::max(ratios.error, report.error);
    ratios.lowest_bound = std::min(ratios.lowest_bound, report.bound);
    ratios.highest_bound = std::max(ratios.highest_bound, report.bound);
  }
  std::printf("| %d | %d | %d | %d | %s | %d | %.3f | %.3f | %.2e | %.2e to %.2e |\n", size.hidden,
              size.latent, size.ranks, size.top_k, twoshot ? "two-shot" : "one-shot", ratios.rows,
              ratios.largest, ratios.sum / seeds, ratios.error, ratios.lowest_bound, ratios.highest_bound);
  return ratios;
}

void print_head() {
  std::printf(
      "| H | L | T | K | x | rows | largest ratio | mean worst ratio | largest error | bound |\n"
      "|--:|--:|--:|--:|---|--:|--:|--:|--:|---|\n");
}

TEST(HonestRatio, StaysBelowTheBoundAtSmallSizes) {
  constexpr Size kSmall[] = {{"", 8, 8, 1, 1, 4},      {"", 16, 8, 1, 4, 4},      {"", 64, 16, 2, 2, 4},
                             {"", 128, 64, 2, 4, 4},   {"", 128, 64, 2, 16, 4},   {"", 256, 512, 4, 8, 4},
                             {"", 512, 128, 8, 16, 3}, {"", 1024, 128, 16, 64, 2}};
  print_head();
  for (const Size& size : kSmall)
    for (bool twoshot : {false, true}) {
      const Ratios ratios = honest_ratios(size, twoshot, size.hidden * size.latent > 10000 ? 20 : 150);
      // Tight, too: a bound that honest rows come nowhere near would hide faults.
      EXPECT_GT(ratios.largest, 0.3);
    }
}

TEST(HonestRatio, StaysBelowTheBoundAtFullSize) {
  print_head();
  for (bool twoshot : {false, true}) {
    const Ratios ratios = honest_ratios({"K3", 7168, 3584, 8, 16, 4}, twoshot, 4);
    EXPECT_LT(ratios.largest, 0.85);
    EXPECT_GT(ratios.largest, 0.5);
    honest_ratios({"", 2048, 1024, 8, 8, 4}, twoshot, 8);
    honest_ratios({"", 4096, 16, 2, 2, 4}, twoshot, 20);
    honest_ratios({"", 128, 4096, 16, 8, 4}, twoshot, 20);
  }
}

TEST(Formula, GivesTheContractsLimitsAtFullSize) {
  const Shape shape;
  const LayerWeights layer = make_layer(shape, 3, 1);
  InputOptions options;
  options.form = Form::partial;
  CallInputs inputs = make_inputs(shape, 2, 3, 1, options);
  for (bool shared : {true, false}) {
    if (!shared) {  // nothing but the product: the largest ratio of operand error to reference
      for (RankArrays& arrays : inputs.arrays) std::fill(arrays.shared.begin(), arrays.shared.end(), u16{0});
    }
    for (bool twoshot : {false, true}) {
      const Expectation expectation = expect(make_problem(shape, 2, twoshot, inputs, layer));
      const RowNorms norms = row_norms(expectation, 1);
      const double formula = formula_error(expectation, 1, norms) / norms.reference;
      std::printf("formula at K3, %s, %s: %.3e\n", twoshot ? "two-shot" : "one-shot",
                  shared ? "with shared experts" : "without", formula);
      EXPECT_LE(formula, twoshot ? kK3TwoshotLimit : kK3Limit);
      EXPECT_GT(formula, 2.0e-3);
    }
  }
}

TEST(Formula, ConcernsTheColumnsJudged) {
  const Size size{"", 2048, 512, 4, 4, 2};
  const Shape shape = shape_of(size);
  const CallInputs inputs = make_inputs(shape, 2, 3, 1);
  const LayerWeights layer = make_layer(shape, 3, 1);
  const Problem problem = make_problem(shape, 2, false, inputs, layer);
  const std::vector<u16> out = emulate(problem);
  double last = 1;
  for (int count : {32, 128, 512, 2048}) {
    const RowReport report = check_rows(expect(problem, sample_columns(9, 2048, 4, count)), out);
    EXPECT_TRUE(report.passes()) << report.text();
    EXPECT_LT(report.bound, last) << count;  // fewer columns scatter more
    last = report.bound;
  }
}

}  // namespace
}  // namespace moetail::verify
