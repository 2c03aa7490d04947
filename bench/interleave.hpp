// SPDX-License-Identifier: Apache-2.0
// The method of the comparison: two versions step by step in turn, so that whatever the machine does meanwhile meets both.
#pragma once

#include <functional>
#include <vector>

namespace moetail::bench {

/// Runs one whole step and returns how long it took, in microseconds.
using Block = std::function<double()>;

/// Step times of every round.
struct Rounds {
  std::vector<double> first_us;   ///< ours
  std::vector<double> second_us;  ///< ours once more
  std::vector<double> theirs_us;  ///< empty where there is no other version
  int restless_steps = 0;         ///< begun while other threads of this process still used a core

  /// Ours over theirs in each round: the mean of our two steps over the step of theirs that lies between them.
  std::vector<double> ratios() const;
  /// Ours over ours in each round: the noise. Which of the two steps is the divisor changes from round to round.
  std::vector<double> noise() const;
};

/// What stands before each step; false where it did not help.
using Pause = std::function<bool()>;

/// Returns when no thread of this process uses a core any more, or after half a second: an OpenMP runtime's threads go on spinning for some
/// milliseconds after their last work and would take cores from the other version. True if it became quiet.
bool pause_until_quiet();
/// For programs that share no thread.
inline bool no_pause() {
  return true;
}

/// `rounds` rounds of ours, theirs, ours, each after a `pause`. `theirs` may be empty.
Rounds interleave(int rounds, const Block& ours, const Block& theirs, const Pause& pause = pause_until_quiet);

/// The same step `count` times with no other version in between: what interleaving is compared with.
std::vector<double> alone(int count, const Block& block);

/// pause_until_quiet with another limit.
bool wait_until_quiet(int limit_ms = 500);

}  // namespace moetail::bench
