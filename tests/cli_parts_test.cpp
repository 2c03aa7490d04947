// SPDX-License-Identifier: Apache-2.0
// Parts of the command by themselves: number lists, statistics, the table and the report of a failed row, the judge.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>

#include "cli/format.hpp"
#include "cli/json_report.hpp"
#include "cli/judge.hpp"
#include "cli/number_list.hpp"
#include "cli/progress.hpp"
#include "cli/result.hpp"
#include "cli/setup.hpp"
#include "cli/weights.hpp"
#include "tests/io_testing.hpp"
#include "verify/emulate.hpp"

namespace moetail::cli {
namespace {

using io_testing::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(NumberList, ReadsNumbersAndRanges) {
  EXPECT_THAT(parse_number_list("--batch", "4", 1, 64), ElementsAre(4));
  EXPECT_THAT(parse_number_list("--batch", "8,1-3,16", 1, 64), ElementsAre(8, 1, 2, 3, 16));
}

TEST(NumberList, RefusesWhatIsNoList) {
  for (const char* text :
       {"", ",", "1,", "x", "1-", "-1", "4-2", "1,1", "2,1-3", "0", "65", "1 ,2", "1-2-3", "99999999999"}) {
    const std::string message =
        error_of(Code::invalid_argument, [&] { parse_number_list("--batch", text, 1, 64); });
    EXPECT_THAT(message, HasSubstr("--batch = \"" + std::string(text) + "\"")) << text;
    EXPECT_THAT(message, HasSubstr("accepted is numbers from 1 to 64"));
  }
}

RC_GTEST_PROP(NumberList, RangesAreWhatTheySay, ()) {
  const int first = *rc::gen::inRange(1, 500), last = *rc::gen::inRange(first, 500);
  const auto numbers = parse_number_list("--batch", fmt::format("{}-{}", first, last), 1, 500);
  RC_ASSERT(static_cast<int>(numbers.size()) == last - first + 1);
  RC_ASSERT(numbers.front() == first && numbers.back() == last &&
            std::is_sorted(numbers.begin(), numbers.end()));
}

TEST(Format, BytesHaveAFittingUnit) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(51'387'392), "51.4 MB");
  EXPECT_EQ(bytes_text(999'600), "1.0 MB");
  EXPECT_EQ(bytes_text(123'456'789), "123 MB");
}

TEST(Timing, IsByNearestRank) {
  std::vector<double> samples(200);
  for (int i = 0; i < 200; ++i) samples[static_cast<std::size_t>(i)] = 200 - i;
  const Timing timing = timing_of(samples);
  EXPECT_EQ(timing.median_us, 100);
  EXPECT_EQ(timing.p99_us, 198);
  EXPECT_EQ(timing.samples, 200u);
  EXPECT_EQ(timing_of({7}).p99_us, 7);
  EXPECT_EQ(timing_of({}).samples, 0u);
}

Result example_result() {
  Result result;
  result.configuration.input.batch = 4;
  result.configuration.plan.mode = Mode::publish;
  result.num_layers = 16;
  result.steps = 12;
  result.timing = {1234.5, 2345.6, 176};
  result.floor = {617.25, 100};
  result.checks.worst_error = 2.0e-3;
  result.checks.worst_bound = 3.0e-3;
  result.checks.rows_checked = 168;
  result.checks.rows_total = 768;
  return result;
}

TEST(Table, ShowsTimesOfARowThatPassed) {
  const std::string line = table_line(result_columns(), result_cells(example_result()));
  for (const char* cell :
       {"publish", "1234.5", "2345.6", "617.2", "50.0", "2.00e-03", "3.00e-03", "168/768", "pass"})
    EXPECT_THAT(line, HasSubstr(cell));
  EXPECT_TRUE(mismatch_text(example_result()).empty());
}

TEST(Table, ShowsNoTimeWhereACheckFailed) {
  bool Checks::*const flags[] = {&Checks::ranks_equal, &Checks::repeat_equal, &Checks::modes_equal,
                                 &Checks::within_bound};
  for (const auto flag : flags) {
    Result result = example_result();
    result.checks.*flag = false;
    result.checks.note_mismatch("step 3, layer 7: token 2 column 11");
    const std::string line = table_line(result_columns(), result_cells(result));
    for (const char* time : {"1234", "2345", "617", "50.0"}) EXPECT_THAT(line, Not(HasSubstr(time)));
    EXPECT_THAT(line, HasSubstr("FAIL"));
    EXPECT_EQ(mismatch_text(result), "FAIL publish, T=8, B=4: step 3, layer 7: token 2 column 11");
    const nlohmann::json report = result_json(result);
    for (const char* time : {"median_us", "p99_us", "floor_us", "percent_of_floor"})
      EXPECT_TRUE(report.at(time).is_null());
    EXPECT_EQ(report.at("verdict"), "fail");
  }
}

TEST(Table, ARunThatCheckedNothingHasNotPassed) {
  Result result = example_result();
  result.checks.rows_checked = 0;
  EXPECT_EQ(result_cells(result).back(), "FAIL");
}

TEST(Table, ColumnsStandUnderTheirTitles) {
  const std::vector<Column> columns = {{"name", 6, Align::left}, {"us", 5}};
  EXPECT_EQ(table_titles(columns), "name       us");
  EXPECT_EQ(table_line(columns, {"a", "1.5"}), "a         1.5");
  EXPECT_EQ(table_text({{"name", 0, Align::left}, {"us"}}, {{"longer name", "1"}}),
            "name         us\nlonger name   1\n");
}

TEST(Floor, IsTheLargerOfBothLimits) {
  Plan plan;
  plan.weight_bytes = 3'000'000;
  plan.input_bytes = 500'000;
  plan.output_bytes = 500'000;
  plan.mailbox_bytes = 1'000'000'000;  // stays in caches
  plan.flops = 10'000'000;
  EXPECT_DOUBLE_EQ(floor_of(plan, {4e9, 1e12, 1, "", true}).us(), 1000);
  EXPECT_DOUBLE_EQ(floor_of(plan, {4e9, 5e9, 1, "", true}).us(), 2000);
}

TEST(Progress, WritesPlainLinesWhereThereIsNoTerminal) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  {
    Progress progress(false, file);
    progress.begin("three things", 3);
    for (int i = 0; i < 3; ++i) progress.advance();
    progress.end();
    Progress quiet(true, file);
    quiet.begin("nothing", 1);
    quiet.advance();
    quiet.end();
  }
  std::rewind(file);
  char text[200] = {};
  const std::size_t size = std::fread(text, 1, sizeof(text) - 1, file);
  std::fclose(file);
  EXPECT_THAT(std::string(text, size), ::testing::MatchesRegex("three things: done in [0-9]+\\.[0-9] s\n"));
}

TEST(Weights, AreThoseThatTheJudgesTestsUse) {
  Shape shape;
  shape.hidden = 64;
  shape.latent = 32;
  shape.ranks = 1;
  Progress progress(true);
  const int layers[] = {5};
  const auto weights = synthetic_weights(9, layers, shape.hidden, shape.latent, progress);
  const verify::LayerWeights expected = verify::make_layer(shape, 9, 5);
  EXPECT_TRUE(std::ranges::equal(weights[0].up_proj.span(), expected.w_up));
  EXPECT_TRUE(std::ranges::equal(weights[0].norm.span(), expected.gamma));
}

TEST(Setup, RefusesARunThatTheMemoryDoesNotHold) {
  const RunSetup setup = make_setup({});
  check_memory(setup, std::uint64_t{64} << 30);
  const std::string message =
      error_of(Code::unsupported, [&] { check_memory(setup, std::uint64_t{1} << 30); });
  EXPECT_THAT(message, HasSubstr("weights 822 MB"));
  EXPECT_THAT(message, HasSubstr("available, 1.1 GB"));
  EXPECT_THAT(message, HasSubstr("--layers"));
}

// Rows that an honest implementation gives, and ways to spoil them.
class FakeOutput : public StepOutput {
 public:
  FakeOutput(std::span<const LayerWeights> weights, const Inputs& inputs, int step) {
    for (std::size_t position = 0; position < weights.size(); ++position) {
      const int set = inputs.set_of(static_cast<int>(position), step);
      const verify::Problem problem{inputs.spec().shape,
                                    inputs.spec().batch,
                                    false,
                                    inputs.ranks(set),
                                    weights[position].up_proj.data(),
                                    weights[position].norm.data()};
      rows.emplace_back(static_cast<std::size_t>(inputs.spec().shape.ranks), verify::emulate(problem));
    }
  }
  std::span<const Bf16> output(int position, int rank) const override {
    return rows[static_cast<std::size_t>(position)][static_cast<std::size_t>(rank)];
  }

  std::vector<std::vector<std::vector<Bf16>>> rows;  ///< [layer][rank][B * H]
};

class JudgeTest : public ::testing::Test {
 protected:
  JudgeTest() {
    spec_.shape.hidden = 128;
    spec_.shape.latent = 64;
    spec_.shape.ranks = 2;
    spec_.shape.top_k = 4;
    spec_.batch = 3;
    spec_.seed = 3;
  }

  // Judges kSteps steps, each spoiled by `spoil`.
  Checks judge(const std::function<void(int step, FakeOutput&)>& spoil) {
    Progress progress(true);
    const int layers[] = {1, 2};
    const auto weights =
        synthetic_weights(spec_.seed, layers, spec_.shape.hidden, spec_.shape.latent, progress);
    const Inputs inputs = Inputs::synthetic(spec_, 2, progress);
    Judge judge(weights, inputs, Mode::front, kSteps);
    for (int step = 0; step < kSteps; ++step) {
      FakeOutput output(weights, inputs, step);
      spoil(step, output);
      judge.check_step(output, step);
    }
    return judge.checks();
  }

  static constexpr int kSteps = 5;
  InputSpec spec_;
};

TEST_F(JudgeTest, PassesHonestRowsOfEveryForm) {
  for (const Form form : {Form::expanded, Form::permuted, Form::partial, Form::published}) {
    for (const WeightType weights : {WeightType::bf16, WeightType::fp32}) {
      spec_.form = form;
      spec_.weights = weights;
      spec_.residual = form == Form::permuted;
      const Checks checks = judge([](int, FakeOutput&) {});
      EXPECT_TRUE(checks.passed()) << protocol::form_name(form) << ": " << checks.first_mismatch;
      EXPECT_EQ(checks.rows_total, 30u);
      EXPECT_EQ(checks.rows_checked, 2u * 6 + 3 * Judge::kSampledRows);
      EXPECT_GT(checks.worst_error, 0);
      EXPECT_LE(checks.worst_error, checks.worst_bound);
    }
  }
}

TEST_F(JudgeTest, FindsARankThatDiffers) {
  const Checks checks = judge([](int step, FakeOutput& output) {
    if (step == 2) output.rows[1][1][2 * 128 + 17] ^= 1;
  });
  EXPECT_FALSE(checks.ranks_equal);
  EXPECT_TRUE(checks.repeat_equal);
  EXPECT_TRUE(checks.within_bound);
  EXPECT_FALSE(checks.passed());
  EXPECT_THAT(checks.first_mismatch, HasSubstr("step 2, layer 2"));
  EXPECT_THAT(checks.first_mismatch, HasSubstr("rank 1 token 2 column 17"));
}

TEST_F(JudgeTest, FindsAStepThatDoesNotRepeat) {
  const Checks checks = judge([](int step, FakeOutput& output) {
    if (step == 3)
      for (auto& rank : output.rows[0]) rank[5] ^= 1;
  });
  EXPECT_TRUE(checks.ranks_equal);
  EXPECT_FALSE(checks.repeat_equal);
  EXPECT_THAT(checks.first_mismatch, HasSubstr("step 3, layer 1: differs from step 1"));
  EXPECT_THAT(checks.first_mismatch, HasSubstr("token 0 column 5"));
}

TEST_F(JudgeTest, FindsALostLineInAnyRowOfTheFirstAndTheLastStep) {
  for (const int bad_step : {0, kSteps - 1}) {
    for (std::size_t token = 0; token < 3; ++token) {
      const Checks checks = judge([&](int step, FakeOutput& output) {
        if (step == bad_step)
          for (auto& rank : output.rows[1])
            std::fill_n(rank.begin() + static_cast<long>(token) * 128 + 64, 8, Bf16{0});
      });
      EXPECT_TRUE(checks.ranks_equal);
      EXPECT_FALSE(checks.within_bound);
      EXPECT_EQ(checks.worst_step, bad_step);
      EXPECT_EQ(checks.worst_layer, 2);
      EXPECT_EQ(checks.worst_token, static_cast<int>(token));
    }
  }
}

TEST_F(JudgeTest, FindsAlwaysWrongRowsByItsSamples) {
  const Checks checks = judge([](int step, FakeOutput& output) {
    if (step == 0 || step == kSteps - 1) return;
    for (auto& layer : output.rows)
      for (auto& rank : layer) std::fill(rank.begin(), rank.end(), Bf16{0x3F80});
  });
  EXPECT_FALSE(checks.within_bound);
  EXPECT_THAT(checks.first_mismatch, HasSubstr("step 1, layer"));
}

TEST_F(JudgeTest, HashTellsOutputsApart) {
  const Checks one = judge([](int, FakeOutput&) {}), two = judge([](int, FakeOutput&) {});
  EXPECT_EQ(one.output_hash, two.output_hash);
  const Checks other = judge([](int step, FakeOutput& output) {
    if (step == kSteps - 1) output.rows[1][0].back() ^= 1;
  });
  EXPECT_NE(one.output_hash, other.output_hash);
}

TEST(Inputs, LayersAndStepsHaveOtherSetsAndRepeatAfterTwo) {
  InputSpec spec;
  spec.shape.hidden = 64;
  spec.shape.latent = 32;
  spec.shape.ranks = 1;
  spec.batch = 2;
  Progress progress(true);
  const Inputs inputs = Inputs::synthetic(spec, 3, progress);
  EXPECT_EQ(inputs.num_sets(), 6);
  std::vector<int> seen;
  for (int position = 0; position < 3; ++position)
    for (int step = 0; step < 2; ++step) {
      seen.push_back(inputs.set_of(position, step));
      EXPECT_EQ(inputs.set_of(position, step), inputs.set_of(position, step + 2));
    }
  std::sort(seen.begin(), seen.end());
  EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_FALSE(std::ranges::equal(std::span(inputs.ranks(0)[0].shared, 128),
                                  std::span(inputs.ranks(1)[0].shared, 128)));
}

TEST(Inputs, PoolOfLargeCallsStaysBounded) {
  InputSpec spec;
  spec.shape.ranks = 16;
  spec.batch = 128;
  EXPECT_LE(Inputs::synthetic_bytes(spec, 92), Inputs::kPoolBytes);
  EXPECT_GT(Inputs::synthetic_bytes(spec, 92), Inputs::kPoolBytes / 2);
}

}  // namespace
}  // namespace moetail::cli
