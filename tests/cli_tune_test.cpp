// SPDX-License-Identifier: Apache-2.0
// `moetail tune`: the choice of a table from times, the file as World reads it, and the command as users run it.
#include <fstream>
#include <limits>

#include "cli/tune.hpp"
#include "tests/cli_testing.hpp"

namespace moetail::cli_testing {
namespace {

using cli::choose_policy;
using cli::loss_of;
using cli::ModeTimes;

TEST(Tune, TheFastestWayIsChosenAtEveryBatch) {
  const std::vector<ModeTimes> times = {
      {8, 1, 10, 12, 13}, {8, 2, 11, 12, 13}, {8, 4, 15, 12, 13}, {8, 8, 30, 20, 18}};
  const Policy policy = choose_policy(times, Policy{});
  EXPECT_EQ(policy.front_limit(8), 2);
  EXPECT_EQ(policy.share_from, 8);
  EXPECT_EQ(loss_of(policy, times), 0.0);
  // T that were not measured keep what they had.
  for (int ranks : {1, 2, 4, 16}) EXPECT_EQ(policy.front_limit(ranks), Policy{}.front_limit(ranks));
}

TEST(Tune, NoFrontNoSharingAndBothForEver) {
  EXPECT_EQ(choose_policy({{4, 1, 10, 9, 11}, {4, 2, 10, 9, 11}}, Policy{}).front_limit(4), 0);
  EXPECT_EQ(choose_policy({{4, 1, 10, 9, 11}, {4, 2, 10, 9, 11}}, Policy{}).share_from,
            protocol::kMaxCapacity);
  EXPECT_EQ(choose_policy({{4, 1, 10, 9, 8}, {4, 2, 10, 9, 8}}, Policy{}).share_from, 1);
  EXPECT_EQ(choose_policy({{4, 1, 5, 9, 8}, {4, 64, 5, 9, 8}}, Policy{}).front_limit(4), 64);
}

// One number for all T: the table with the least loss over all of them, though no T alone would choose it.
TEST(Tune, WhereRankCountsDisagreeTheLossDecides) {
  const std::vector<ModeTimes> times = {{2, 8, 100, 10, 20}, {8, 8, 100, 11, 10}};
  const Policy policy = choose_policy(times, Policy{});
  EXPECT_EQ(policy.share_from, protocol::kMaxCapacity);
  EXPECT_NEAR(loss_of(policy, times), 0.05, 1e-12);
  Policy other = policy;
  other.share_from = 8;
  EXPECT_NEAR(loss_of(other, times), 0.5, 1e-12);
}

TEST(Tune, OfEqualTablesTheSimplest) {
  const Policy policy = choose_policy({{8, 1, 10, 10, 10}, {8, 16, 10, 10, 10}}, Policy{});
  EXPECT_EQ(policy.front_limit(8), 16);
  EXPECT_EQ(policy.share_from, protocol::kMaxCapacity);
}

TEST(Tune, TheFileSaysTheSame) {
  const TempDir scratch;
  const std::string path = (scratch / "policy.json").string();
  Policy policy;
  policy.front_up_to = {0, 1, 65535, 7, 8};
  policy.share_from = 3;
  std::ofstream(path) << cli::policy_text(policy);
  const Policy read = Policy::load(path);
  EXPECT_EQ(read.front_up_to, policy.front_up_to);
  EXPECT_EQ(read.share_from, policy.share_from);
}

TEST(Tune, AWayServesEveryBatch) {
  for (const cli::Way& way : cli::kWays) {
    const Policy policy = cli::way_policy(way, Policy::of(Engine::cuda));
    for (const int ranks : {1, 8, 16})
      for (const int batch : {1, 128})
        EXPECT_TRUE(policy.serves(ranks, batch, way.mode, way.shares())) << way.name;
  }
}

TEST(Tune, KernelsComeIntoTheTableWhereItRunsThem) {
  Policy policy;
  policy.front_up_to = {8, 8, 8, 16, 8};
  policy.share_from = 64;
  policy.cuda_kernels[3][7].warps = 8;  // of B = 128, which nobody measures here
  const KernelChoice tile{.tile = 8}, rows{.row_block = 64}, late{.trigger = 1};
  const Policy with = cli::with_kernels(
      policy, {{8, 16, 0, tile}, {8, 8, 1, tile}, {8, 32, 1, rows}, {8, 64, 1, rows}, {4, 64, 2, late}});
  EXPECT_EQ(with.cuda_kernels[3][4], tile);
  EXPECT_EQ(with.cuda_kernels[3][3], KernelChoice{}) << "measured in publish mode, served in front";
  EXPECT_EQ(with.cuda_kernels[3][5], rows);
  EXPECT_EQ(with.cuda_kernels[3][6], KernelChoice{}) << "measured without shared sums, served with them";
  EXPECT_EQ(with.cuda_kernels[2][6], late);
  EXPECT_EQ(with.cuda_kernels[3][7].warps, 8);
  EXPECT_EQ(with.front_up_to, policy.front_up_to);
  // 9 and 16 run one kernel.
  EXPECT_EQ(cli::with_kernels(policy, {{8, 16, 0, tile}, {8, 9, 0, late}}).cuda_kernels[3][4], tile);
  EXPECT_EQ(cli::with_kernels(policy, {{8, 9, 0, late}, {8, 16, 0, tile}}).cuda_kernels[3][4], tile);
}

TEST(Tune, TheFileSaysTheKernelsToo) {
  const TempDir scratch;
  const std::string path = (scratch / "policy.json").string();
  Policy policy = Policy::of(Engine::cuda);
  for (std::size_t trigger = 0; trigger < kTriggerNames.size(); ++trigger)
    policy.cuda_kernels[4][trigger].trigger = static_cast<int>(trigger);
  policy.cuda_kernels[0][0] = {.trigger = 1, .row_block = 32, .tile = 8, .stages = 3, .warps = 16};
  policy.cuda_kernels[3][7].stages = 2;
  std::ofstream(path) << cli::policy_text(policy);
  EXPECT_EQ(Policy::load(path).cuda_kernels, policy.cuda_kernels);
  EXPECT_THAT(cli::policy_text(Policy::of(Engine::cpu)), Not(HasSubstr("cuda_kernels")));
}

TEST(Tune, AWayThatCannotBeBuiltIsNotChosen) {
  const double never = std::numeric_limits<double>::infinity();
  const std::vector<ModeTimes> times = {{8, 1, never, 12, 13}, {8, 16, never, 20, never}};
  EXPECT_EQ(times[0].fastest(), 1u);
  const Policy policy = choose_policy(times, Policy{});
  EXPECT_EQ(policy.front_limit(8), 0);
  EXPECT_EQ(policy.share_from, protocol::kMaxCapacity);
  EXPECT_EQ(loss_of(policy, times), 0.0);
}

TEST(CliTune, WritesATableThatRunTakes) {
  const TempDir scratch;
  const std::string path = (scratch / "policy.json").string();
  const Outcome tune = moetail("tune " + kSmallShape +
                               "--layers 2 --rounds 3 --tp 2,4 --batch 1,4 --quiet --out '" + path + "'");
  ASSERT_EQ(tune.exit_code, 0) << tune.out << tune.err;
  for (const char* part : {"front us", "publish us", "sharing us", "chosen", "built-in"})
    EXPECT_THAT(tune.out, HasSubstr(part));
  const Policy policy = Policy::load(path);
  EXPECT_THAT(policy.front_limit(2), ::testing::AnyOf(0, 1, 4));
  EXPECT_EQ(policy.front_limit(8), Policy{}.front_limit(8));
  const Outcome run = moetail("run " + kSmallRun + "--tp 4 --batch 4 --json - --policy '" + path + "'");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(only_result(run).at("mode"), policy.front_limit(4) >= 4 ? "front" : "publish");
}

TEST(CliTune, BadInputLeavesATableThatIsThere) {
  const TempDir scratch;
  const std::string path = (scratch / "policy.json").string();
  std::ofstream(path) << "{}";
  for (const std::string& flags :
       {std::string(), std::string("--out /nowhere/policy.json"), "--engine cuda --out '" + path + "'",
        "--rounds 2 --out '" + path + "'", "--form published --out '" + path + "'",
        "--mode front --out '" + path + "'", "--batch 33 --out '" + path + "'",
        "--put unicast --out '" + path + "'", "--knobs tile --out '" + path + "'",
        "--engine cuda --knobs slices --out '" + path + "'"}) {
    const Outcome tune = moetail("tune " + kSmallShape + "--layers 1 --quiet " + flags);
    EXPECT_EQ(tune.exit_code, 2) << flags;
    EXPECT_NE(tune.err, "") << flags;
  }
  EXPECT_EQ(read_file(path), "{}");
}

}  // namespace
}  // namespace moetail::cli_testing
