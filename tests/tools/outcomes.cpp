// SPDX-License-Identifier: Apache-2.0
// One GoogleTest case for every way in which a case can end, for the test of tools/expect_failure.py.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>

TEST(Outcome, Passes) {
  EXPECT_EQ(1, 1);
}
TEST(Outcome, FailsByAssertion) {
  EXPECT_EQ(1, 2);
}
TEST(Outcome, Skips) {
  GTEST_SKIP() << "on purpose";
}
TEST(Outcome, Throws) {
  throw std::runtime_error("on purpose");
}
TEST(Outcome, Aborts) {
  std::abort();
}
TEST(Outcome, ExitsWithOne) {
  std::exit(1);
}
TEST(Outcome, NeverEnds) {
  EXPECT_EQ(1, 2);
  std::this_thread::sleep_for(std::chrono::hours(1));
}
