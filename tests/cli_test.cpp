// SPDX-License-Identifier: Apache-2.0
// The command as users run it: every shape of work, what it prints, and the JSON report.
#include "tests/cli_testing.hpp"

namespace moetail::cli_testing {
namespace {

TEST(CliRun, MeasuresItsCeilings) {
  const Outcome run = moetail("run " + kSmallRun + "--json -", "");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.json().at("machine").at("ceilings_measured"), true);
  EXPECT_GT(run.json().at("machine").at("bytes_per_second").get<double>(), 1e8);
  EXPECT_GT(run.json().at("machine").at("bf16_flops_per_second").get<double>(), 1e8);
}

TEST(CliRun, PrintsATableAndPasses) {
  const Outcome run = moetail("run " + kSmallRun);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.err, "");
  for (const char* part : {"hidden 256, latent 128, top-k 4", "median us", "p99 us", "% of floor",
                           "ranks equal", "repeat equal", "rows checked", "20/24", "pass", "floor = max("})
    EXPECT_THAT(run.out, HasSubstr(part));
}

TEST(CliRun, ProgressGoesToStderrOnly) {
  const Outcome run = moetail("run " + kSmallShape + "--layers 1 --steps 3");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("weights of 1 layers: done in"));
  EXPECT_THAT(run.err, Not(HasSubstr("\r"))) << "no bar where there is no terminal";
  EXPECT_THAT(run.out, Not(HasSubstr("done in")));
}

TEST(CliRun, EveryRankCountAndMode) {
  const Outcome run = moetail("run " + kSmallRun +
                              "--tp 1,2,4,8,16 --batch 3 --mode front,front_poll,publish,twoshot --json -");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const nlohmann::json results = run.json().at("results");
  ASSERT_EQ(results.size(), 20u);
  for (std::size_t i = 0; i < results.size(); ++i) {
    SCOPED_TRACE(results[i].dump());
    EXPECT_EQ(results[i].at("verdict"), "pass");
    EXPECT_EQ(results[i].at("mode"),
              std::vector<std::string>({"front", "front_poll", "publish", "twoshot"})[i % 4]);
    EXPECT_TRUE(results[i].at("modes_equal"));
    EXPECT_LT(results[i].at("worst_row_error"), 4.0e-3);
  }
}

TEST(CliRun, EveryFormWeightTypeAndResidual) {
  for (const char* form : {"rows", "permuted", "partial"}) {
    const Outcome run =
        moetail("run " + kSmallRun + "--mode front,publish,twoshot --weights-dtype fp32 --residual --form " +
                form + " --json -");
    EXPECT_EQ(run.exit_code, 0) << form << run.err;
    EXPECT_EQ(run.json().at("verdict"), "pass") << form;
  }
}

TEST(CliRun, PlaysTheExpertsForPublishedInput) {
  const Outcome run =
      moetail("run " + kSmallRun + "--form published --mode front_poll,publish,twoshot,auto --json -");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const nlohmann::json results = run.json().at("results");
  ASSERT_EQ(results.size(), 4u);
  for (const auto& result : results) EXPECT_EQ(result.at("verdict"), "pass") << result.dump();
  EXPECT_EQ(results[3].at("mode"), "publish") << "who publishes is served by publish mode at any batch";
}

TEST(CliRun, BatchesGiveOneRowEachAndThePolicyChoosesTheMode) {
  const Outcome run = moetail("run " + kSmallRun + "--tp 2 --batch 1,8-9,17 --json -");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  std::vector<std::string> rows;
  const nlohmann::json results = run.json().at("results");
  for (const auto& result : results)
    rows.push_back(result.at("mode").get<std::string>() + " " +
                   std::to_string(result.at("batch").get<int>()));
  EXPECT_THAT(rows, ::testing::ElementsAre("front 1", "front 8", "publish 9", "publish 17"));
}

TEST(CliRun, PolicyFileChangesTheMode) {
  const TempDir scratch;
  io_testing::write_file(scratch / "policy.json", R"({"policy_version": 1, "front_up_to": {"8": 1}})");
  const Outcome run =
      moetail("run " + kSmallRun + "--policy " + (scratch / "policy.json").string() + " --json -");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(only_result(run).at("mode"), "publish");
}

TEST(CliRun, TheSameSeedGivesTheSameBits) {
  const auto hash = [](const std::string& flags) {
    return only_result(moetail("run " + kSmallRun + "--json - " + flags))
        .at("output_hash")
        .get<std::string>();
  };
  const std::string first = hash("--seed 5");
  EXPECT_EQ(first, hash("--seed 5"));
  EXPECT_EQ(first, hash("--seed 5 --mode publish"));
  EXPECT_NE(first, hash("--seed 6"));
}

TEST(CliRun, JsonHasEveryFieldOfTheTable) {
  const TempDir scratch;
  const std::string file = (scratch / "out.json").string();
  const Outcome run = moetail("run " + kSmallRun + "--json " + file);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("verdict")) << "the table stays on stdout";
  const auto report = nlohmann::json::parse(read_file(file));

  for (const char* text : {"tool", "version", "date", "engine", "world", "verdict"})
    EXPECT_TRUE(report.at(text).is_string()) << text;
  EXPECT_THAT(report.at("date").get<std::string>(),
              ::testing::MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"));
  EXPECT_EQ(report.at("command_line").at(1), "run");
  EXPECT_EQ(report.at("seed"), 1);
  EXPECT_EQ(report.at("model").at("hidden"), 256);
  EXPECT_EQ(report.at("model").at("layers"), (std::vector<int>{1, 2}));
  EXPECT_TRUE(report.at("model").at("checkpoint").is_null());
  for (const char* text : {"cpu", "system", "dispatch_target"})
    EXPECT_TRUE(report.at("machine").at(text).is_string()) << text;
  for (const char* number : {"cores", "memory_bytes", "bytes_per_second", "bf16_flops_per_second"})
    EXPECT_GT(report.at("machine").at(number), 0) << number;

  const nlohmann::json& result = report.at("results").at(0);
  for (const char* text : {"mode", "mode_asked", "form", "weights_dtype", "output_hash", "verdict"})
    EXPECT_TRUE(result.at(text).is_string()) << text;
  for (const char* number :
       {"median_us", "p99_us", "floor_us", "percent_of_floor", "worst_row_error", "worst_row_bound"})
    EXPECT_GT(result.at(number).get<double>(), 0) << number;
  for (const char* flag : {"ranks_equal", "repeat_equal", "modes_equal"})
    EXPECT_TRUE(result.at(flag).get<bool>()) << flag;
  EXPECT_EQ(result.at("tp"), 8);
  EXPECT_EQ(result.at("batch"), 4);
  EXPECT_EQ(result.at("steps"), 3);
  EXPECT_EQ(result.at("layers"), 2);
  EXPECT_EQ(result.at("samples"), 4) << "the first step warms up";
  EXPECT_EQ(result.at("rows_checked"), 20) << "two whole steps and a sample of the third";
  EXPECT_EQ(result.at("rows_total"), 24);
  EXPECT_TRUE(result.at("first_mismatch").is_null());
  EXPECT_LE(result.at("median_us"), result.at("p99_us"));
  EXPECT_DOUBLE_EQ(result.at("percent_of_floor").get<double>(),
                   100 * result.at("floor_us").get<double>() / result.at("median_us").get<double>());
}

TEST(CliCheckpoint, WithAPrefixAndThreeShardsGivesTheSyntheticBits) {
  const TempDir scratch;
  const std::string directory = (scratch / "k3").string();
  const Outcome make =
      moetail("make-checkpoint " + directory +
              " --layers 4 --hidden 256 --latent 128 --shards 3 --prefix language_model. --seed 7 --quiet");
  ASSERT_EQ(make.exit_code, 0) << make.err;
  EXPECT_THAT(make.out, HasSubstr("4 layers of [256, 128] bf16"));
  const std::string flags = "--top-k 4 --capacity 32 --steps 3 --seed 7 --quiet --json - ";
  const Outcome read = moetail("run --checkpoint " + directory + " " + flags);
  ASSERT_EQ(read.exit_code, 0) << read.err;
  EXPECT_EQ(read.json().at("model").at("layers"), (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(read.json().at("model").at("checkpoint"), directory);
  const Outcome made_up = moetail("run --hidden 256 --latent 128 --layers 4 " + flags);
  EXPECT_EQ(only_result(read).at("output_hash"), only_result(made_up).at("output_hash"));
}

TEST(CliCheckpoint, LayersAreASelection) {
  const TempDir scratch;
  const std::string directory = (scratch / "k3").string();
  ASSERT_EQ(
      moetail("make-checkpoint " + directory + " --layers 4 --hidden 256 --latent 128 --quiet").exit_code, 0);
  const Outcome run = moetail("run --checkpoint " + directory +
                              " --layers 2,4 --top-k 4 --capacity 32 --steps 3 --quiet --json -");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.json().at("model").at("layers"), (std::vector<int>{2, 4}));
}

TEST(CliCheckpoint, IsReplacedByForceOnly) {
  const TempDir scratch;
  const std::string make =
      "make-checkpoint " + (scratch / "k3").string() + " --hidden 64 --latent 32 --quiet --layers ";
  ASSERT_EQ(moetail(make + "3 --shards 2").exit_code, 0);
  const Outcome again = moetail(make + "2");
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.err, HasSubstr("already holds"));
  io_testing::write_file(scratch / "k3" / "notes.txt", "mine");
  EXPECT_EQ(moetail(make + "2 --force").exit_code, 0);
  EXPECT_EQ(read_file(scratch / "k3" / "notes.txt"), "mine");
  EXPECT_FALSE(std::filesystem::exists(scratch / "k3" / "model-00002-of-00002.safetensors"));
}

TEST(CliPlan, SaysWhatWouldRun) {
  const Outcome plan = moetail("plan --tp 8 --batch 1-64");
  EXPECT_EQ(plan.exit_code, 0) << plan.err;
  for (const char* part : {"front", "publish", "reduced", "51.4 MB", "clusters", "Mflop", "--measure"})
    EXPECT_THAT(plan.out, HasSubstr(part));
  EXPECT_THAT(plan.out, ::testing::ContainsRegex("8 +4  front"));
  EXPECT_THAT(plan.out, ::testing::ContainsRegex("8 +5  publish  none"));
  EXPECT_THAT(plan.out, ::testing::ContainsRegex("8 +64  publish  reduced"));
  EXPECT_THAT(plan.out, Not(HasSubstr("floor us")));
}

TEST(CliPlan, MeasuresTheFloorOnRequest) {
  const Outcome plan = moetail("plan --batch 1 --measure", "");
  EXPECT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_THAT(plan.out,
              AllOf(HasSubstr("floor us"), HasSubstr("floor = max("), HasSubstr("measured in this run")));
}

TEST(CliFloor, ComesFromGivenCeilingsAndSaysSo) {
  const Outcome run = moetail("run " + kSmallRun + "--json -", "MOETAIL_CEILINGS=0.5,2");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.json().at("machine").at("ceilings_measured"), false);
  const nlohmann::json result = only_result(run), plan = result.at("plan");
  const double bytes = plan.at("weight_bytes").get<double>() + plan.at("input_bytes").get<double>() +
                       plan.at("output_bytes").get<double>();
  EXPECT_DOUBLE_EQ(result.at("floor_bytes_us").get<double>(), bytes / 500);
  EXPECT_DOUBLE_EQ(result.at("floor_flops_us").get<double>(), plan.at("flops").get<double>() / 2000);
  EXPECT_THAT(moetail("run " + kSmallRun).out, HasSubstr("given by MOETAIL_CEILINGS"));
}

TEST(CliInfo, DescribesMachineEnginesLayoutAndEnvironment) {
  const Outcome info = moetail("info");
  EXPECT_EQ(info.exit_code, 0) << info.err;
  for (const char* part :
       {"processor", "dispatch targets", "scalar", "ready", "cuda", "cannot run: engine = cuda",
        "no CUDA driver: libmoetail-no-such-driver.so.1", "kernel cache", "polled shared (S)",
        "[3, T, C, H/T]", "22020096", "MOETAIL_CPU_TARGET"})
    EXPECT_THAT(info.out, HasSubstr(part));
}

TEST(CliInfo, LayoutIsThatOfTheShapeGiven) {
  const Outcome info = moetail("info --tp 2 --hidden 256 --latent 128 --capacity 4");
  EXPECT_EQ(info.exit_code, 0) << info.err;
  EXPECT_THAT(info.out, HasSubstr("T = 2, H = 256, L = 128, K = 16, C = 4, PC = 4"));
  EXPECT_THAT(info.out, ::testing::ContainsRegex("latent +\\[3, T, C, L\\] +bf16 +0 +6144 "));
}

TEST(CliInfo, SaysWhyTheCpuEngineCannotRun) {
  const Outcome info = moetail("info", "MOETAIL_CPU_TARGET=abacus");
  EXPECT_EQ(info.exit_code, 0) << info.err;
  EXPECT_THAT(info.out, AllOf(HasSubstr("cannot run: "), HasSubstr("abacus")));
}

TEST(CliHelp, ListsSubcommandsAndExitCodes) {
  const Outcome help = moetail("--help");
  EXPECT_EQ(help.exit_code, 0);
  for (const char* part : {"run", "make-checkpoint", "plan", "info", "3 a fault at run time"})
    EXPECT_THAT(help.out, HasSubstr(part));
  EXPECT_EQ(moetail("run --help").exit_code, 0);
  EXPECT_EQ(moetail("--version").exit_code, 0);
}

}  // namespace
}  // namespace moetail::cli_testing
