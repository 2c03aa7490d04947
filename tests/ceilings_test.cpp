// SPDX-License-Identifier: Apache-2.0
// The measured ceilings: plausible, and above what the arithmetic reaches.
#include "engine/cpu/ceilings.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/error.hpp"
#include "engine/cpu/arith.hpp"

namespace moetail::cpu {
namespace {

TEST(Ceilings, NoThreadsIsAnError) {
  for (const int threads : {0, -1}) {
    try {
      measure_ceilings(threads);
      FAIL() << threads << " threads were accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      EXPECT_STREQ(error.what(), fmt::format("threads = {}: accepted is 1 or more", threads).c_str());
    }
  }
}

TEST(Ceilings, SayWhatWasMeasured) {
  const Ceilings ceilings = measure_ceilings(2);
  EXPECT_EQ(ceilings.threads, 2);
  EXPECT_EQ(ceilings.flops_target, arith().name);
  EXPECT_GT(ceilings.read_bytes_per_s, 1e8);
  EXPECT_LT(ceilings.read_bytes_per_s, 1e13);
  EXPECT_GT(ceilings.bf16_flops, 1e8);
  EXPECT_LT(ceilings.bf16_flops, 1e15);
}

/// Best time of one dot of [num_rows, 3584] by `num_tokens` out of several, each on weights of its own.
double best_dot_seconds(const std::vector<Bf16>& weights, int num_rows, int num_tokens, int repeats) {
  constexpr int kLatent = 3584;
  const std::vector<Bf16> operand(static_cast<std::size_t>(num_tokens) * kLatent, 0x3F80);
  std::vector<float> dot(static_cast<std::size_t>(num_tokens) * static_cast<std::size_t>(num_rows));
  const std::size_t shard = static_cast<std::size_t>(num_rows) * kLatent;
  double best = 1e9;
  for (int i = 0; i < repeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    arith().dot(weights.data() + static_cast<std::size_t>(i) % (weights.size() / shard) * shard,
                operand.data(), kLatent, num_rows, num_tokens, dot.data(), num_rows);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

// A floor made of ceilings that the product exceeds would be none. Other work on the machine can spoil any one
// measurement, so one good attempt out of three is enough. A sanitizer slows the two down differently: not there.
TEST(Ceilings, AreAboveWhatTheDotReachesAtFullSize) {
  constexpr int kNumRows = 4 * 896;  // 25.7 MB, about as long as a pass of the measurement
  constexpr int kNumTokens = 64;
  constexpr double kBytes = 2.0 * kNumRows * 3584;
  std::vector<Bf16> weights(std::size_t{16} * kNumRows * 3584, 0x3F80);  // 411 MB
  bool bytes_held = false;
  bool flops_held = false;
  for (int attempt = 0; attempt < 3 && !(bytes_held && flops_held); ++attempt) {
    const Ceilings ceilings = measure_ceilings(1);
    bytes_held |= kBytes / best_dot_seconds(weights, kNumRows, 1, 16) < 1.1 * ceilings.read_bytes_per_s;
    flops_held |=
        kBytes * kNumTokens / best_dot_seconds(weights, kNumRows, kNumTokens, 4) < ceilings.bf16_flops;
  }
  EXPECT_TRUE(bytes_held);
  EXPECT_TRUE(flops_held);
}

}  // namespace
}  // namespace moetail::cpu
