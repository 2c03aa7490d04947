// SPDX-License-Identifier: Apache-2.0
// The tool on a machine with a GPU, played by the fake driver: what info says, which engine run chooses, and that kernels which compute
// nothing do not pass.
#include <gmock/gmock.h>

#include "cli/exit_code.hpp"
#include "tests/cli_testing.hpp"
#include "tests/cuda_testing.hpp"

namespace moetail::cli_testing {
namespace {

using ::testing::HasSubstr;

const std::string kWithGpu =
    kGivenCeilings + " MOETAIL_CACHE_DIR= MOETAIL_CUDA_DRIVER='" MOETAIL_FAKE_CUDA "'";
const std::string kTwoRanks = "run " + kSmallRun + "--tp 2 --batch 1 --json - ";

TEST(CliGpu, InfoDescribesTheDevice) {
  const Outcome info = moetail("info", kWithGpu);
  EXPECT_EQ(info.exit_code, 0) << info.err;
  for (const char* part : {"cuda              ready", "CUDA 13.0", "Fake GPU, sm_90a, 132 SMs",
                           "in memory only", "resident clusters 264 of 1 blocks", "7 of 16 blocks"})
    EXPECT_THAT(info.out, HasSubstr(part));
}

class CliGpuRun : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      cuda::Nvrtc::of_machine();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
};

TEST_F(CliGpuRun, ChoosesTheGpuAndJudgesWhatItDid) {
  const Outcome run = moetail(kTwoRanks, kWithGpu);
  EXPECT_EQ(run.exit_code, cli::kCheckFailed) << run.err;
  EXPECT_THAT(run.out, HasSubstr("\"engine\": \"cuda\""));
  EXPECT_THAT(run.out, HasSubstr("\"verdict\": \"fail\""));
}

TEST_F(CliGpuRun, TheSameOnTheCpuPasses) {
  const Outcome run = moetail(kTwoRanks + "--engine cpu", kWithGpu);
  EXPECT_EQ(run.exit_code, cli::kAllPassed) << run.err;
  EXPECT_THAT(run.out, HasSubstr("\"engine\": \"cpu\""));
}

TEST_F(CliGpuRun, ReplaysOneRank) {
  const Outcome run = moetail(kTwoRanks + "--world replay", kWithGpu);
  EXPECT_EQ(run.exit_code, cli::kCheckFailed) << run.err;
  EXPECT_THAT(run.out, HasSubstr("\"world\": \"replay\""));
}

TEST_F(CliGpuRun, WarmupMakesTheKernelsThatARunFinds) {
  const testing::ScopedFolder folder;
  const std::string environment = kWithGpu + " MOETAIL_CACHE_DIR='" + folder.path().string() + "'";
  const auto num_kept = [&] {
    return std::distance(std::filesystem::directory_iterator(folder.path()),
                         std::filesystem::directory_iterator());
  };
  const Outcome warmup =
      moetail("warmup " + kSmallShape + "--tp 2 --batch 1 --mode front,publish", environment);
  EXPECT_EQ(warmup.exit_code, cli::kAllPassed) << warmup.err;
  EXPECT_THAT(warmup.out, HasSubstr("2 configurations, 6 kernels"));
  // One take serves both modes.
  EXPECT_EQ(num_kept(), 5);
  moetail(kTwoRanks + "--mode front,publish", environment);
  EXPECT_EQ(num_kept(), 5) << "the run compiled what the warm-up had not";
}

TEST_F(CliGpuRun, PlaysTheProducersOfPublishedInput) {
  for (const char* mode : {"publish", "twoshot", "front_poll"}) {
    const Outcome run = moetail(kTwoRanks + "--form published --mode " + mode, kWithGpu);
    EXPECT_EQ(run.exit_code, cli::kCheckFailed) << run.err;
    EXPECT_THAT(run.out, HasSubstr("\"engine\": \"cuda\""));
    EXPECT_THAT(run.out, HasSubstr("\"verdict\": \"fail\"")) << "the fake device computes nothing";
  }
}

}  // namespace
}  // namespace moetail::cli_testing
