// SPDX-License-Identifier: Apache-2.0
// The oracle and the exact quantities: known answers, a second evaluation written apart, the order of every
// sum, and where NaN and Inf go.
#include "verify/oracle.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "protocol/numerics.hpp"
#include "verify/compare.hpp"
#include "verify/emulate.hpp"
#include "verify/exact.hpp"
#include "verify/inputs.hpp"

namespace moetail::verify {
namespace {

using protocol::bf16_from_f32;
using protocol::f32_from_bf16;

constexpr u16 kOne = 0x3F80;
constexpr u16 kInf = 0x7F80;

Shape make_shape(int hidden, int latent, int ranks, int top_k) {
  Shape shape;
  shape.hidden = hidden;
  shape.latent = latent;
  shape.ranks = ranks;
  shape.top_k = top_k;
  return shape;
}

/// One call of partials that a test can write element by element.
struct Bench {
  Shape shape;
  int batch;
  CallInputs inputs;
  LayerWeights layer;
  bool twoshot = false;

  Bench(const Shape& s, int b, InputOptions options, u64 seed = 5)
      : shape(s), batch(b), inputs(make_inputs(s, b, seed, 1, options)), layer(make_layer(s, seed, 1)) {}
  Problem problem() const { return make_problem(shape, batch, twoshot, inputs, layer); }
  RowReport judge(const std::vector<u16>& out, RankSum sum = RankSum::float64) const {
    return check_rows(expect(problem(), {}, sum), out);
  }
};

Bench partial_bench(int hidden, int latent, int ranks, int batch) {
  InputOptions options;
  options.form = Form::partial;
  return Bench(make_shape(hidden, latent, ranks, 2), batch, options);
}

TEST(Oracle, AnswersAHandComputedCase) {
  // x = (3, 4, 0, ...) has mean square 25/8; with eps = 1/8 the root is that of 3.25.
  Bench bench = partial_bench(8, 8, 1, 1);
  bench.shape.eps = 0.125f;
  bench.inputs.arrays[0].partial = {bf16_from_f32(3), bf16_from_f32(4), 0, 0, 0, 0, 0, 0};
  bench.inputs.ranks[0].partial = bench.inputs.arrays[0].partial.data();
  for (u16& value : bench.layer.gamma) value = kOne;
  bench.layer.gamma[1] = bf16_from_f32(2);
  for (u16& value : bench.layer.w_up) value = 0;
  for (int i = 0; i < 8; ++i) bench.layer.w_up[i * 8 + i] = kOne;  // identity
  bench.layer.w_up[7 * 8 + 0] = bf16_from_f32(-1);
  for (int j = 0; j < 8; ++j) bench.inputs.arrays[0].shared[j] = bf16_from_f32(static_cast<float>(j));
  std::vector<u16> residual(8, bf16_from_f32(10));
  bench.inputs.ranks[0].residual = residual.data();
  const Expectation expectation = expect(bench.problem());
  const double root = std::sqrt(3.25);
  EXPECT_NEAR(expectation.out[0], 3 / root + 0 + 10, 1e-12);
  EXPECT_NEAR(expectation.out[1], 8 / root + 1 + 10, 1e-12);
  EXPECT_NEAR(expectation.out[5], 15, 1e-12);
  EXPECT_NEAR(expectation.out[7], -3 / root + 7 + 10, 1e-12);
  EXPECT_NEAR(expectation.without_residual[7], -3 / root + 7, 1e-12);
}

/// The operation in long double, by the text of the contract, one loop inside the other.
std::vector<double> long_evaluation(const Problem& problem) {
  const Shape& shape = problem.shape;
  std::vector<std::vector<u16>> partials;
  for (int r = 0; r < shape.ranks; ++r) partials.push_back(exact_partial(problem, r));
  std::vector<double> out;
  for (int b = 0; b < problem.batch; ++b) {
    std::vector<long double> x;
    long double square = 0;
    for (int c = 0; c < shape.latent; ++c) {
      long double sum = 0;
      float in_order = f32_from_bf16(partials[0][b * shape.latent + c]);
      for (int r = 0; r < shape.ranks; ++r) {
        const float value = f32_from_bf16(partials[r][b * shape.latent + c]);
        sum += static_cast<long double>(value);
        if (r > 0) in_order += value;
      }
      if (problem.twoshot) sum = static_cast<long double>(f32_from_bf16(bf16_from_f32(in_order)));
      x.push_back(sum);
      square += sum * sum;
    }
    const long double root = std::sqrt(square / shape.latent + static_cast<long double>(shape.eps));
    for (int j = 0; j < shape.hidden; ++j) {
      long double value = 0;
      for (int c = 0; c < shape.latent; ++c)
        value += static_cast<long double>(f32_from_bf16(problem.w_up[j * shape.latent + c])) *
                 static_cast<long double>(f32_from_bf16(problem.gamma[c])) * x[c] / root;
      for (const RankInput& rank : problem.ranks)
        value += static_cast<long double>(f32_from_bf16(rank.shared[b * shape.hidden + j]));
      if (problem.ranks[0].residual)
        value += static_cast<long double>(f32_from_bf16(problem.ranks[0].residual[b * shape.hidden + j]));
      out.push_back(static_cast<double>(value));
    }
  }
  return out;
}

TEST(Oracle, AgreesWithASecondEvaluationInEveryForm) {
  int seed = 0;
  for (Form form : {Form::expanded, Form::permuted, Form::partial, Form::published})
    for (int ranks : {1, 2, 8})
      for (bool twoshot : {false, true}) {
        InputOptions options;
        options.form = form;
        options.residual = ++seed % 2 == 0;
        options.weight_type = seed % 3 == 0 ? WeightType::bf16 : WeightType::fp32;
        Bench bench(make_shape(64 * ranks, 192, ranks, 1 + seed % 7), 1 + seed % 6, options, 100 + seed);
        bench.twoshot = twoshot;
        const std::vector<double> expected = long_evaluation(bench.problem());
        const Expectation expectation = expect(bench.problem());
        ASSERT_EQ(expected.size(), expectation.out.size());
        for (std::size_t i = 0; i < expected.size(); ++i)
          ASSERT_NEAR(expected[i], expectation.out[i], 1e-12) << "seed " << seed << " element " << i;
      }
}

TEST(Oracle, ColumnsAndThreadsChangeNoValue) {
  InputOptions options;
  options.residual = true;
  Bench bench(make_shape(256, 64, 4, 4), 5, options);
  const Expectation whole = expect(bench.problem());
  const std::vector<i32> columns = {255, 0, 17, 18, 130};
  for (int threads : {1, 3}) {
    const Expectation some = expect(bench.problem(), columns, RankSum::float64, threads);
    ASSERT_EQ(some.out.size(), 25u);
    for (int b = 0; b < 5; ++b)
      for (int j = 0; j < 5; ++j) EXPECT_EQ(some.out[b * 5 + j], whole.out[b * 256 + columns[j]]);
  }
  const std::vector<i32> wrong = {256};
  EXPECT_THROW(expect(bench.problem(), wrong), Error);
}

TEST(Exact, PartialFollowsTheGroupingOfTheContract) {
  // K = 6: runs of two, so (r0 + r1) + (r4 + r5) meets (r2 + r3) + nothing. Large values make the order
  // visible.
  InputOptions options;
  Bench bench(make_shape(8, 8, 1, 6), 1, options);
  const float values[6] = {0x1p24f, 1, 1, -0x1p24f, 1, 1.5f};
  for (int k = 0; k < 6; ++k) {
    bench.inputs.arrays[0].weights_fp32[k] = 1.0f;
    for (int c = 0; c < 8; ++c) bench.inputs.arrays[0].rows[k * 8 + c] = bf16_from_f32(values[k]);
  }
  // g0 = 2^24 (the 1 is lost), g1 = 1 - 2^24, g2 = 2.5, g3 = 0: (2^24 + 2) + (1 - 2^24) = 3. One route after
  // the other gives 2.5, and (g0 + g1) + (g2 + g3) gives 3.5.
  EXPECT_EQ(f32_from_bf16(exact_partial(bench.problem(), 0)[0]), 3.0f);

  // The product is not rounded before it is added: (1 + 2^-7)(1 + 2^-23) - (1 + 2^-7) keeps the tail of the
  // product.
  const float weight = 1.0f + 0x1p-23f, row = 1.0f + 0x1p-7f;
  Bench fused(make_shape(8, 8, 1, 5), 1, options);  // runs of two: the first holds routes 0 and 1
  for (int k = 0; k < 5; ++k) fused.inputs.arrays[0].weights_fp32[k] = k < 2 ? 1.0f : 0.0f;
  fused.inputs.arrays[0].weights_fp32[1] = weight;
  for (int c = 0; c < 8; ++c) {
    fused.inputs.arrays[0].rows[c] = bf16_from_f32(-row);
    fused.inputs.arrays[0].rows[8 + c] = bf16_from_f32(row);
  }
  EXPECT_EQ(f32_from_bf16(exact_partial(fused.problem(), 0)[3]),
            f32_from_bf16(bf16_from_f32(std::fma(weight, row, -row))));
  EXPECT_NE(std::fma(weight, row, -row), weight * row - row);
}

TEST(Exact, DroppedRoutesAreSkippedNotMultiplied) {
  InputOptions options;
  options.form = Form::permuted;
  options.dropped_share = 0;
  Bench bench(make_shape(8, 8, 1, 3), 1, options);
  const std::vector<u16> before = exact_partial(bench.problem(), 0);
  for (float& weight : bench.inputs.arrays[0].weights_fp32) weight = std::numeric_limits<float>::quiet_NaN();
  bench.inputs.arrays[0].weights_fp32[1] = 1.0f;
  for (int k : {0, 2}) bench.inputs.arrays[0].map[k] = k == 0 ? -5 : std::numeric_limits<i32>::min();
  const u16* row = bench.inputs.arrays[0].rows.data() + 8 * bench.inputs.arrays[0].map[1];
  EXPECT_EQ(exact_partial(bench.problem(), 0), std::vector<u16>(row, row + 8));
  bench.inputs.arrays[0].map[1] = -1;
  EXPECT_EQ(exact_partial(bench.problem(), 0), std::vector<u16>(8, 0));
  EXPECT_NE(before, std::vector<u16>(8, 0));
}

TEST(Exact, SumsOverRanksKeepTheirOrder) {
  Bench bench = partial_bench(32, 8, 4, 1);
  const float values[4] = {1, 0x1p30f, -0x1p30f, 3};
  for (int r = 0; r < 4; ++r) {
    for (u16& value : bench.inputs.arrays[r].partial) value = bf16_from_f32(values[r]);
    for (u16& value : bench.inputs.arrays[r].shared) value = bf16_from_f32(values[3 - r]);
  }
  EXPECT_EQ(exact_x(bench.problem()), std::vector<float>(8, 3.0f));        // ((1 + 2^30) - 2^30) + 3
  EXPECT_EQ(exact_shared(bench.problem()), std::vector<float>(32, 1.0f));  // ((3 - 2^30) + 2^30) + 1
  EXPECT_EQ(exact_gather(bench.problem()), std::vector<u16>(8, bf16_from_f32(3.0f)));

  for (auto& arrays : bench.inputs.arrays) {
    for (u16& value : arrays.partial) value = 0x8000;
    for (u16& value : arrays.shared) value = 0x8000;
  }
  EXPECT_TRUE(std::signbit(exact_x(bench.problem())[0]));  // -0 from every rank stays -0
  EXPECT_TRUE(std::signbit(exact_shared(bench.problem())[0]));
}

TEST(Exact, SquareSumFollowsSixteenLanes) {
  std::vector<float> x(40);
  x[0] = 0x1p12f;  // lane 0: 2^24
  x[16] = 1;       // lane 0 again: lost
  x[8] = 1;        // lane 8 meets lane 0 first: lost too
  x[1] = 1, x[2] = 1, x[3] = 1, x[5] = 1;
  // Lanes 1 + 5 (2) and 3 (1) meet as 3, lane 2 joins lane 0 alone and is lost, then 2^24 + 3 rounds to 2^24
  // + 4.
  EXPECT_EQ(exact_square_sum(x.data(), 40), 0x1p24f + 4.0f);
}

TEST(Oracle, NanAndInfinityGoWhereTheContractSendsThem) {
  Bench bench = partial_bench(32, 16, 2, 4);
  bench.inputs.arrays[1].partial[0 * 16 + 5] = kInf;    // token 0: everything is NaN
  bench.inputs.arrays[0].shared[1 * 32 + 9] = kInf;     // token 1: one Inf
  bench.inputs.arrays[1].shared[1 * 32 + 10] = 0xFFFF;  // and one NaN
  bench.inputs.arrays[0].partial[2 * 16 + 3] =
      bf16_from_f32(0x1p100f);  // token 2: the squares overflow, n = 0
  const Expectation expectation = expect(bench.problem());
  const std::vector<float> shared = exact_shared(bench.problem());
  for (int j = 0; j < 32; ++j) {
    EXPECT_TRUE(std::isnan(expectation.out[j]));
    if (j == 9)
      EXPECT_EQ(expectation.out[32 + j], std::numeric_limits<double>::infinity());
    else
      EXPECT_EQ(std::isnan(expectation.out[32 + j]), j == 10) << j;
    EXPECT_EQ(expectation.out[64 + j], static_cast<double>(shared[64 + j]));
  }
  std::vector<u16> out = emulate(bench.problem());
  EXPECT_TRUE(check_rows(expectation, out).passes()) << check_rows(expectation, out).text();

  const auto fails_with = [&](int index, u16 value) {
    std::vector<u16> wrong = out;
    wrong[index] = value;
    const RowReport report = check_rows(expectation, wrong);
    EXPECT_EQ(report.wrong_class, 1u);
    EXPECT_EQ(report.class_token, index / 32);
    EXPECT_EQ(report.class_column, index % 32);
    return !report.passes();
  };
  EXPECT_TRUE(fails_with(3, kOne));           // a number for NaN
  EXPECT_TRUE(fails_with(32 + 9, 0x7FFF));    // NaN for Inf
  EXPECT_TRUE(fails_with(32 + 9, 0xFF80));    // the wrong sign
  EXPECT_TRUE(fails_with(3 * 32 + 1, kInf));  // Inf for a number
}

// A row that is wrong beyond the slack is not forgiven for another one that is within it.
TEST(Oracle, SlackIsEachRowsOwn) {
  Bench bench = partial_bench(64, 32, 2, 2);
  std::vector<u16> out = emulate(bench.problem());
  const Expectation expectation = expect(bench.problem());
  ASSERT_TRUE(check_rows(expectation, out).passes());
  const auto shift = [&](int token, float by) {
    for (int j = 0; j < 64; ++j) {
      u16& value = out[static_cast<std::size_t>(token) * 64 + static_cast<std::size_t>(j)];
      value = bf16_from_f32(f32_from_bf16(value) * (1 + by));
    }
  };
  shift(0, 0.05f);
  EXPECT_FALSE(check_rows(expectation, out).passes());
  EXPECT_TRUE(check_rows(expectation, out, 0, 0.2).passes());
  shift(1, 0.5f);
  const RowReport report = check_rows(expectation, out, 0, 0.2);
  EXPECT_EQ(report.failed_rows, 1);
  EXPECT_EQ(report.worst_token, 1);
}

// 2^127 + 2^127 - 2^127 leaves fp32's range or not, as the additions are ordered; 2^127 alone never does. The squares overflow, so the scale
// is 0, and the output the shared sum where the dot is a number and NaN where it is not.
TEST(Oracle, AnOverflowThatTheOrderOfTheDotDecidesMayBeOrNot) {
  Bench bench = partial_bench(8, 8, 1, 1);
  auto& partial = bench.inputs.arrays[0].partial;
  std::fill(partial.begin(), partial.end(), u16{0});
  partial[0] = partial[1] = bf16_from_f32(0x1p127f);
  partial[2] = bf16_from_f32(-0x1p127f);
  std::fill(bench.layer.gamma.begin(), bench.layer.gamma.end(), kOne);
  std::fill(bench.layer.w_up.begin(), bench.layer.w_up.end(), u16{0});
  for (int c = 0; c < 3; ++c) bench.layer.w_up[c] = kOne;
  bench.layer.w_up[8] = kOne;
  const Expectation expectation = expect(bench.problem());
  std::vector<u16> out(bench.inputs.arrays[0].shared.begin(), bench.inputs.arrays[0].shared.begin() + 8);
  EXPECT_TRUE(check_rows(expectation, out).passes()) << check_rows(expectation, out).text();
  const u16 number = out[0];
  out[0] = 0x7FFF;
  EXPECT_TRUE(check_rows(expectation, out).passes()) << check_rows(expectation, out).text();
  out[0] = kOne ^ number;
  EXPECT_FALSE(check_rows(expectation, out).passes()) << "another number is wrong";
  out[0] = number;
  out[1] = 0x7FFF;
  EXPECT_FALSE(check_rows(expectation, out).passes()) << "no order makes this one overflow";
}

TEST(Oracle, AwkwardValuesArePassedByAnHonestImplementation) {
  int finite_rows = 0, other_rows = 0;
  for (int seed = 0; seed < 240; ++seed) {
    InputOptions options;
    const Form forms[] = {Form::expanded, Form::permuted, Form::partial};
    options.form = forms[seed % 3];
    options.residual = seed % 2 == 0;
    options.specials.kinds = seed % 4 == 0 ? special::kFinite : special::kAll;
    options.specials.share = seed % 4 == 0 ? 0.3 : 0.0015;
    Bench bench(make_shape(128, 64, 1 << seed % 4, 4), 3, options, 1000 + seed);
    if (seed % 5 == 0) sprinkle({7, Stream::own}, {special::kAll, 0.001}, 0, bench.layer.w_up);
    if (seed % 7 == 0) sprinkle({8, Stream::own}, {special::kFinite, 0.2}, 0, bench.layer.gamma);
    bench.twoshot = seed % 8 < 4;
    const Expectation expectation = expect(bench.problem());
    const RowReport report = check_rows(expectation, emulate(bench.problem()));
    EXPECT_TRUE(report.passes()) << "seed " << seed << ": " << report.text();
    for (int b = 0; b < 3; ++b) {
      bool finite = true;
      for (int j = 0; j < 128; ++j) finite = finite && std::isfinite(expectation.out[b * 128 + j]);
      (finite ? finite_rows : other_rows) += 1;
    }
  }
  EXPECT_GT(finite_rows, 100);
  EXPECT_GT(other_rows, 100);
}

TEST(Oracle, ZeroRowsDemandExactZeros) {
  Bench bench = partial_bench(64, 32, 2, 2);
  for (auto& arrays : bench.inputs.arrays) {
    std::fill(arrays.partial.begin(), arrays.partial.begin() + 32, u16{0});
    std::fill(arrays.shared.begin(), arrays.shared.begin() + 64, u16{0x8000});
  }
  std::vector<u16> out = emulate(bench.problem());
  EXPECT_TRUE(bench.judge(out).passes()) << bench.judge(out).text();
  out[7] = 1;  // the smallest subnormal
  const RowReport report = bench.judge(out);
  EXPECT_FALSE(report.passes());
  EXPECT_EQ(report.worst_token, 0);
  EXPECT_EQ(report.worst_column, 7);
  EXPECT_TRUE(std::isinf(report.error));
}

TEST(CheckProblem, NamesFieldValueAndWhatIsAccepted) {
  InputOptions options;
  options.form = Form::permuted;
  Bench bench(make_shape(64, 32, 2, 2), 2, options);
  const auto message = [&](auto change) {
    Problem problem = bench.problem();
    std::vector<RankInput> ranks(problem.ranks.begin(), problem.ranks.end());
    problem.ranks = ranks;
    change(problem, ranks);
    try {
      expect(problem);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  using Ranks = std::vector<RankInput>;
  std::vector<i32> map = bench.inputs.arrays[1].map;
  map[3] = 99;
  EXPECT_EQ(message([](Problem& p, Ranks&) { p.batch = 0; }), "batch = 0: accepted is 1 or more");
  EXPECT_EQ(message([](Problem& p, Ranks&) { p.shape.hidden = 60; }),
            "hidden = 60: accepted is a multiple of 8 * ranks, at most 1048576");
  EXPECT_EQ(message([](Problem& p, Ranks&) { p.shape.latent = 24, p.twoshot = true; }),
            "latent = 24: accepted is a multiple of 8 * ranks in twoshot mode");
  EXPECT_EQ(message([](Problem& p, Ranks&) { p.ranks = p.ranks.first(1); }),
            "ranks.size() = 1: accepted is 2");
  EXPECT_EQ(message([&](Problem&, Ranks& r) { r[1].map = map.data(); }).substr(0, 35),
            "ranks[1].map[1, 1] = 99: accepted i");
  EXPECT_EQ(message([](Problem&, Ranks& r) { r[0].top_k = 3; }), "ranks[0].top_k = 3: accepted is 2");
  EXPECT_EQ(message([](Problem&, Ranks& r) { r[1].shared = nullptr; }),
            "ranks[1].shared = null: accepted is an array");
  EXPECT_EQ(message([](Problem&, Ranks& r) { r[0].form = Form::expanded, r[0].num_rows = 3; }),
            "ranks[0].num_rows = 3: accepted is batch * top_k = 4");
  EXPECT_EQ(message([](Problem&, Ranks& r) { r[1].residual = r[0].shared; }),
            "ranks[1].residual = an array: accepted is the same on every rank");
  EXPECT_EQ(message([](Problem&, Ranks&) {}), "accepted");
}

}  // namespace
}  // namespace moetail::verify
