// SPDX-License-Identifier: Apache-2.0
// `moetail bench --engine cuda` on the emulated GPU with a cuBLASLt of the tests: the plumbing from flags to reports, what is refused, and
// that wrong rows give no time and no ratio. What the times are means nothing here.
#include <cmath>

#include "bench/cuda/gpu_ceilings.hpp"
#include "cli/exit_code.hpp"
#include "cli/replay_cost.hpp"
#include "tests/cli_testing.hpp"

namespace moetail::cli_testing {
namespace {

const std::string kEmulatedGpu =
    " MOETAIL_CUDA_DRIVER='" MOETAIL_EMULATOR "' MOETAIL_NVRTC='" MOETAIL_EMULATOR
    "' MOETAIL_CACHE_DIR='" MOETAIL_EMULATOR ".bench-cache' MOETAIL_CUBLASLT=";
const std::string kFakeBlas = "'" MOETAIL_FAKE_CUBLASLT "' ";
const std::string kTinyBench =
    "bench --engine cuda --hidden 64 --latent 64 --top-k 5 --capacity 4 --tp 2 --layers 2 --rounds 3 "
    "--deadline 60 --quiet ";

TEST(BenchGpuCommand, TimesBothPutsBesideTheUnfusedPipeline) {
  if (kSanitized) GTEST_SKIP() << kNoEmulatedGpu;
  const TempDir scratch;
  const std::string csv = (scratch / "rows.csv").string(), html = (scratch / "page.html").string();
  const Outcome bench =
      moetail(kTinyBench + "--batch 3 --residual --json - --csv '" + csv + "' --html '" + html + "'",
              kEmulatedGpu + kFakeBlas);
  ASSERT_EQ(bench.exit_code, 0) << bench.out << bench.err;
  const nlohmann::json report = bench.json();
  EXPECT_EQ(report.at("engine"), "cuda");
  EXPECT_EQ(report.at("world"), "replay");
  for (const char* name :
       {"copy_bytes_per_second", "read_bytes_per_second", "launch_us", "dependent_launch_us"})
    EXPECT_GT(report.at("gpu_ceilings").at(name), 0.0) << name;
  EXPECT_THAT(report.at("method").get<std::string>(),
              AllOf(HasSubstr("floor = max(bytes / "), HasSubstr("peers")));
  const nlohmann::json& rows = report.at("results");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("put"), "multicast");
  EXPECT_EQ(rows[1].at("put"), "unicast");
  EXPECT_LT(rows[0].at("bytes"), rows[1].at("bytes"));
  for (const nlohmann::json& row : rows) {
    SCOPED_TRACE(row.dump());
    EXPECT_EQ(row.at("verdict"), "pass");
    EXPECT_GT(row.at("median_us"), 0.0);
    EXPECT_LE(row.at("min_us"), row.at("median_us"));
    EXPECT_LE(row.at("median_us"), row.at("max_us"));
    EXPECT_EQ(row.at("rows_checked"), 6);
    EXPECT_FALSE(row.contains("phases")) << "nobody asked for them";
    EXPECT_GT(row.at("ratio").at("median"), 0.0);
    EXPECT_GT(row.at("noise").at("median"), 0.0);
    EXPECT_EQ(row.at("step_us").at("baseline").size(), 3u);
    EXPECT_EQ(row.at("baseline").at("name"), "cuBLASLt");
    // The first does not run and the second sleeps.
    EXPECT_THAT(row.at("baseline").at("description").get<std::string>(),
                AllOf(HasSubstr("cuBLASLt 99.1.2"), HasSubstr("algorithm 3 of 3")));
  }
  EXPECT_THAT(read_file(csv), AllOf(HasSubstr("\ncuda,front,2,3,rows,2,3,"), HasSubstr(",unicast,cuBLASLt")));
  EXPECT_THAT(read_file(html),
              AllOf(HasSubstr("ours over cuBLASLt, T=2 auto multicast"), HasSubstr("emulated GPU")));
}

TEST(BenchGpuCommand, PhasesComeFromTracedKernelsBesideTheTimes) {
  if (kSanitized) GTEST_SKIP() << kNoEmulatedGpu;
  const TempDir scratch;
  const std::string html = (scratch / "page.html").string();
  const Outcome bench =
      moetail(kTinyBench + "--batch 1,3 --put unicast --phases --json - --html '" + html + "'",
              kEmulatedGpu + "libmoetail-no-such-blas.so ");
  ASSERT_EQ(bench.exit_code, 0) << bench.out << bench.err;
  const nlohmann::json report = bench.json();
  ASSERT_EQ(report.at("results").size(), 2u);
  for (const nlohmann::json& row : report.at("results")) {
    EXPECT_GT(row.at("median_us"), 0.0);
    const nlohmann::json& phases = row.at("phases");
    for (const char* name : {"prologue", "publication", "polls", "product", "exchange", "output"})
      EXPECT_GT(phases.at(name), 0.0) << name;
  }
  EXPECT_THAT(read_file(html), AllOf(HasSubstr("Breakdown by phase, T=2 auto unicast"),
                                     HasSubstr(" at 3</title>"), HasSubstr("<title>polls: ")));
}

TEST(BenchGpuCommand, ABaselineThatIsWrongGivesNoRatio) {
  if (kSanitized) GTEST_SKIP() << kNoEmulatedGpu;
  const Outcome bench = moetail(kTinyBench + "--batch 1 --put multicast --form partial --json -",
                                kEmulatedGpu + kFakeBlas + "MOETAIL_FAKE_CUBLASLT=wrong ");
  EXPECT_EQ(bench.exit_code, cli::kCheckFailed) << bench.err;
  const nlohmann::json row = only_result(bench);
  EXPECT_EQ(row.at("verdict"), "fail");
  EXPECT_EQ(row.at("baseline").at("verdict"), "fail");
  EXPECT_TRUE(row.at("ratio").is_null());
  EXPECT_TRUE(row.at("baseline").at("median_us").is_null());
}

TEST(BenchGpuCommand, VariantsRunWithoutABaselineAndSayWhy) {
  if (kSanitized) GTEST_SKIP() << kNoEmulatedGpu;
  const Outcome bench = moetail(kTinyBench + "--batch 1 --put unicast --mode publish --take --cold-rows",
                                kEmulatedGpu + "libmoetail-no-such-blas.so ");
  EXPECT_EQ(bench.exit_code, 0) << bench.out << bench.err;
  EXPECT_THAT(bench.out,
              AllOf(HasSubstr("no ratio: no cuBLASLt (MOETAIL_CUBLASLT"),
                    HasSubstr("libmoetail-no-such-blas.so"), HasSubstr("a take behind each tail"),
                    HasSubstr("expert rows out of memory"), HasSubstr("publish"), HasSubstr("pass")));
}

// The fake driver launches nothing: its probes answer nothing, and nothing of it may become a ceiling or a time.
TEST(BenchGpuCommand, AGpuThatComputesNothingIsAFault) {
  const Outcome bench =
      moetail(kTinyBench + "--batch 1", " MOETAIL_CUDA_DRIVER='" MOETAIL_FAKE_CUDA
                                        "' MOETAIL_NVRTC='" MOETAIL_EMULATOR "' MOETAIL_CACHE_DIR= ");
  EXPECT_EQ(bench.exit_code, cli::kFault) << bench.out << bench.err;
  EXPECT_EQ(bench.out, "");
  EXPECT_THAT(bench.err, HasSubstr("publish-to-poll probe: a block saw 0 of"));
}

TEST(BenchGpuCommand, RefusesWhatTheEngineHasNot) {
  const struct {
    const char *flags, *flag;
  } cases[] = {{"--engine cpu --take", "--take"},
               {"--engine cpu --cold-rows", "--cold-rows"},
               {"--engine cpu --put unicast", "--put"},
               {"--engine cuda --put broadcast", "--put = \"broadcast\""},
               {"--engine cuda --alone", "--alone"},
               {"--engine cpu --phases", "--phases"},
               {"--engine cuda --world virtual", "--world = virtual"},
               {"--engine cuda --form published", "--form = published"}};
  for (const auto& [flags, flag] : cases) {
    const Outcome bench = moetail(std::string("bench ") + flags);
    EXPECT_EQ(bench.exit_code, cli::kBadInput) << flags;
    EXPECT_EQ(bench.out, "") << flags;
    EXPECT_THAT(bench.err, AllOf(HasSubstr(flag), HasSubstr("accepted is"))) << flags;
  }
}

cli::Configuration k3_at(int batch, Put put, Mode mode = Mode::front) {
  cli::Configuration one;
  one.input.batch = batch;
  one.plan.mode = mode;
  one.put = put;
  return one;
}

// The table of floors that the project's targets stand beside: us at 4.28 TB/s.
TEST(BenchReplayCost, BytesAreThoseOfTheTargetsTable) {
  const auto us = [](int batch, Put put) {
    return static_cast<double>(cli::replay_cost(k3_at(batch, put), false).bytes()) / 4.28e6;
  };
  EXPECT_NEAR(us(1, Put::multicast), 1.5, 0.1);
  EXPECT_NEAR(us(8, Put::multicast), 2.05, 0.01);
  EXPECT_NEAR(us(8, Put::unicast), 2.17, 0.01);
  EXPECT_NEAR(us(32, Put::multicast), 3.7, 0.05);
  EXPECT_NEAR(us(32, Put::unicast), 4.2, 0.05);
  EXPECT_NEAR(us(64, Put::multicast), 5.9, 0.05);
  EXPECT_NEAR(us(64, Put::unicast), 6.9, 0.05);
  EXPECT_NEAR(us(128, Put::multicast), 10.3, 0.1);
  EXPECT_NEAR(us(128, Put::unicast), 12.2, 0.1);
}

TEST(BenchReplayCost, TheFloorIsTheLargerOfBytesAndChain) {
  bench::GpuCeilings ceilings;
  ceilings.copy_bytes_per_second = 4e12;
  ceilings.read_bytes_per_second = 3e12;
  ceilings.dependent_launch_us = 0.5;
  ceilings.publish_us = 0.3;
  ceilings.exchange_us = 0.7;
  const auto floor = [&](int batch, Mode mode, bool takes) {
    return cli::replay_floor(cli::replay_cost(k3_at(batch, Put::multicast, mode), takes), ceilings);
  };
  EXPECT_NEAR(floor(1, Mode::front, false).chain_us, 0.5 + 0.3 + 0.7, 1e-9);
  EXPECT_NEAR(floor(1, Mode::front, true).chain_us, 1.0 + 0.6 + 0.7, 1e-9);
  EXPECT_NEAR(floor(1, Mode::publish, false).chain_us, 1.5 + 0.3 + 0.7, 1e-9);
  EXPECT_NEAR(floor(1, Mode::twoshot, false).chain_us, 0.5 + 0.6 + 0.7, 1e-9);
  const cli::Floor large = floor(128, Mode::front, false);
  EXPECT_EQ(large.us(), large.bytes_us);
  const cli::Floor small = floor(1, Mode::twoshot, true);
  EXPECT_EQ(small.us(), small.chain_us);
}

}  // namespace
}  // namespace moetail::cli_testing
