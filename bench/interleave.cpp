// SPDX-License-Identifier: Apache-2.0
// Rounds, and the pause between their steps.
#include "bench/interleave.hpp"

#include <chrono>
#include <ctime>
#include <thread>

namespace moetail::bench {
namespace {

// A thread that spins uses all of a look; ours, parked in the kernel, use nothing.
constexpr std::chrono::milliseconds kLook{2};
constexpr double kQuietShare = 0.05;

double process_cpu_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

}  // namespace

std::vector<double> Rounds::ratios() const {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < theirs_us.size(); ++i)
    ratios.push_back(0.5 * (first_us[i] + second_us[i]) / theirs_us[i]);
  return ratios;
}

std::vector<double> Rounds::noise() const {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < first_us.size(); ++i)
    ratios.push_back(i % 2 == 0 ? second_us[i] / first_us[i] : first_us[i] / second_us[i]);
  return ratios;
}

bool wait_until_quiet(int limit_ms) {
  using Clock = std::chrono::steady_clock;
  const auto limit = Clock::now() + std::chrono::milliseconds(limit_ms);
  while (Clock::now() < limit) {
    const auto begin = Clock::now();
    const double used = process_cpu_seconds();
    std::this_thread::sleep_for(kLook);
    const double busy = process_cpu_seconds() - used;
    if (busy < kQuietShare * std::chrono::duration<double>(Clock::now() - begin).count()) return true;
  }
  return false;
}

bool pause_until_quiet() {
  return wait_until_quiet();
}

Rounds interleave(int rounds, const Block& ours, const Block& theirs, const Pause& pause) {
  Rounds result;
  const auto run = [&](const Block& block, std::vector<double>& to) {
    if (!pause()) ++result.restless_steps;
    to.push_back(block());
  };
  for (int round = 0; round < rounds; ++round) {
    run(ours, result.first_us);
    if (theirs) run(theirs, result.theirs_us);
    run(ours, result.second_us);
  }
  return result;
}

std::vector<double> alone(int count, const Block& block) {
  std::vector<double> result;
  for (int i = 0; i < count; ++i) {
    wait_until_quiet();
    result.push_back(block());
  }
  return result;
}

}  // namespace moetail::bench
