// SPDX-License-Identifier: Apache-2.0
// A program whose steps are timed beside another's, each step checked.
#pragma once

#include <utility>
#include <vector>

#include "bench/interleave.hpp"
#include "cli/judge.hpp"
#include "cli/progress.hpp"

namespace moetail::cli {

/// Steps before those that count: both input sets of every layer, so that nothing is touched for the first time while it is measured.
inline constexpr int kWarmUpSteps = 2;

/// Steps of one program with their samples and checks. Judging follows a step's end and is not timed.
template <typename Driver>
class Contestant {
 public:
  Contestant(Driver& driver, Judge judge, Progress& progress)
      : driver_(driver), judge_(std::move(judge)), progress_(progress) {}

  double step() {
    driver_.run_step(step_);
    layer_us_.insert(layer_us_.end(), driver_.layer_us().begin(), driver_.layer_us().end());
    judge_.check_step(driver_, step_);
    ++step_;
    progress_.advance();
    return driver_.step_us();
  }
  bench::Block block() {
    return [this] { return step(); };
  }
  std::vector<double> take_samples() { return std::exchange(layer_us_, {}); }
  const Checks& checks() const { return judge_.checks(); }

 private:
  Driver& driver_;
  Judge judge_;
  Progress& progress_;
  std::vector<double> layer_us_;
  int step_ = 0;
};

}  // namespace moetail::cli
