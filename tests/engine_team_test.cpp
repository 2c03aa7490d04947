// SPDX-License-Identifier: Apache-2.0
// Threads that the system does not give: an error that says so, and a process that goes on.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "base/error.hpp"
#include "engine/cpu/stream.hpp"
#include "tests/record.hpp"
#include "tests/sanitized.hpp"

namespace moetail::testing {
namespace {

constexpr int kManyThreads = 512;  // 4 GB of stacks at Linux's 8 MB each

/// Leaves the process so little address space that not all of kManyThreads stacks fit; false where that cannot be done.
bool limit_memory(rlimit& before) {
  std::ifstream status("/proc/self/statm");
  rlim_t pages = 0;
  if (!(status >> pages) || getrlimit(RLIMIT_AS, &before) != 0) return false;
  rlimit few = before;
  few.rlim_cur = pages * 4096 + (rlim_t{512} << 20);
  return setrlimit(RLIMIT_AS, &few) == 0;
}

int exit_code_of_team_without_memory() {
  rlimit before = {};
  if (!limit_memory(before)) return 3;
  try {
    const cpu::Team team(kManyThreads);
    return 4;
  } catch (const Error& error) {
    std::fputs(error.what(), stderr);
    if (error.code() != Code::resource) return 5;
  }
  setrlimit(RLIMIT_AS, &before);
  cpu::Team team(3);
  std::atomic<int> sum = 0;
  team.run([&](int cluster) { sum += 1 << cluster; });
  return sum == 7 ? 0 : 6;
}

TEST(EngineTeam, AThreadThatCannotBeStartedIsAnError) {
  if (build::kSanitized) GTEST_SKIP() << "a sanitizer's shadow memory does not fit a limit on address space";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::_Exit(exit_code_of_team_without_memory()), ::testing::ExitedWithCode(0),
              "threads of one rank = 512: the system gave .*: accepted is fewer threads in all");
  record_fault("threads that the system does not give", kHost, 1,
               "refused by name; those started have ended");
}

TEST(EngineTeam, RunsEveryClusterOnce) {
  for (int clusters : {1, 2, 5}) {
    cpu::Team team(clusters);
    for (int launch = 0; launch < 3; ++launch) {
      std::atomic<int> sum = 0;
      team.run([&](int cluster) { sum += 1 << cluster; });
      EXPECT_EQ(sum, (1 << clusters) - 1);
    }
  }
}

}  // namespace
}  // namespace moetail::testing
