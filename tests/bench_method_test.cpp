// SPDX-License-Identifier: Apache-2.0
// The benchmark's method: order statistics, rounds, quiet between steps, and what the machine did besides.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "bench/interleave.hpp"
#include "bench/load_watch.hpp"
#include "bench/statistics.hpp"

namespace moetail::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(BenchStatistics, QuantilesAreSamples) {
  EXPECT_EQ(median({3.0, 1.0, 2.0}), 2.0);
  EXPECT_EQ(median({4.0, 3.0, 2.0, 1.0}), 2.0);
  EXPECT_EQ(quantile({3.0, 1.0, 2.0}, 0.0), 1.0);
  EXPECT_EQ(quantile({3.0, 1.0, 2.0}, 1.0), 3.0);
  EXPECT_EQ(quantile({5.0}, 0.99), 5.0);
  std::vector<double> hundred;
  for (int i = 100; i > 0; --i) hundred.push_back(i);
  EXPECT_EQ(quantile(hundred, 0.99), 99.0);
  EXPECT_EQ(quantile({}, 0.5), 0.0);
}

TEST(BenchInterleave, TheirStepLiesBetweenTwoOfOurs) {
  std::string order;
  const Rounds rounds = interleave(
      2,
      [&] {
        order += 'o';
        return static_cast<double>(order.size());
      },
      [&] {
        order += 't';
        return 10.0;
      });
  EXPECT_EQ(order, "otooto");
  EXPECT_THAT(rounds.first_us, ElementsAre(1.0, 4.0));
  EXPECT_THAT(rounds.theirs_us, ElementsAre(10.0, 10.0));
  EXPECT_THAT(rounds.second_us, ElementsAre(3.0, 6.0));
  EXPECT_THAT(rounds.ratios(), ElementsAre(0.2, 0.5));
  // The divisor is the first step in one round and the second in the next: a drift cancels.
  EXPECT_THAT(rounds.noise(), ElementsAre(3.0, 4.0 / 6.0));
}

TEST(BenchInterleave, WithoutAnotherProgramThereIsNoiseButNoRatio) {
  int steps = 0;
  const Rounds rounds = interleave(
      3, [&] { return 1.0 + ++steps; }, Block());
  EXPECT_EQ(steps, 6);
  EXPECT_THAT(rounds.ratios(), IsEmpty());
  EXPECT_EQ(rounds.noise().size(), 3u);
}

TEST(BenchInterleave, AloneRepeatsOneStep) {
  int steps = 0;
  EXPECT_THAT(alone(3, [&] { return 1.0 * ++steps; }), ElementsAre(1.0, 2.0, 3.0));
}

// A thread as an OpenMP runtime leaves it after its last work.
class Spinner {
 public:
  Spinner() {
    while (!runs_) std::this_thread::yield();
  }
  ~Spinner() {
    ends_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> runs_ = false, ends_ = false;
  std::thread thread_{[this] {
    runs_ = true;
    while (!ends_) {
    }
  }};
};

TEST(BenchQuiet, ASpinningThreadIsNoticed) {
  EXPECT_TRUE(wait_until_quiet());
  const Spinner spinner;
  // On a crowded machine the spinner may not run during one look: it is enough to see it once.
  int noticed = 0;
  for (int i = 0; i < 50 && noticed == 0; ++i) noticed += wait_until_quiet(1) ? 0 : 1;
  EXPECT_EQ(noticed, 1);
}

TEST(BenchLoad, SharesAreShares) {
  const LoadWatch watch;
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const std::optional<Load> load = watch.load();
  if (!load) GTEST_SKIP() << "this system has no /proc/stat";
  EXPECT_GE(load->others, 0.0);
  EXPECT_LE(load->others + load->stolen, 1.0 + 1e-9);
}

}  // namespace
}  // namespace moetail::bench
