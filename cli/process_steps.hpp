// SPDX-License-Identifier: Apache-2.0
// Steps of a world whose ranks are processes: children of this one, which hands out the steps and reads all ranks' rows.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/step_driver.hpp"

namespace moetail::cli {

/// The children are forked, not started anew: they share the weights and inputs that were made once, in pages that none of them writes.
/// So this process must have one thread when the object is made.
class ProcessSteps : public StepRunner {
 public:
  /// As StepDriver, which runs in each child. Throws what set-up fails with on any rank.
  ProcessSteps(const WorldOptions& options, std::span<const LayerWeights> weights, const Inputs& inputs,
               Mode asked, Mode running);
  ~ProcessSteps() override;  ///< every child has ended then
  ProcessSteps(const ProcessSteps&) = delete;
  ProcessSteps& operator=(const ProcessSteps&) = delete;

  /// Throws Code::fault that names a child that died, with its signal, and what a survivor says of it; or the first fault.
  void run_step(int step) override;
  std::span<const Bf16> output(int position, int rank) const override;
  std::span<const double> layer_us() const override;

 private:
  struct Shared;  ///< what children and parent both map
  struct Child {
    int rank = 0;
    pid_t pid = -1;
    int channel = -1;
    bool answers_due = false;
    bool reaped = false;
  };

  [[noreturn]] void serve(int rank, int channel, pid_t parent, const std::string& token);
  void serve_steps(int rank, int channel, const std::string& token);
  void start(int rank, const ProcessSession& session);
  /// Waits for one answer of every child. `limit`: how long a rank may wait for another, 0 for ever; who has not answered that long
  /// and a second after the first that did, or after the first failure, is the one that did not answer.
  void collect(std::chrono::milliseconds limit, const ProcessSession* session);
  std::string end_of(Child& child);
  void end_all(bool at_once) noexcept;
  void meet_before_release(int step) const;

  const WorldOptions options_;
  const std::span<const LayerWeights> weights_;
  const Inputs& inputs_;
  const Mode asked_, running_;
  std::size_t rows_of_rank_;  ///< elements of one rank's outputs of a step
  std::size_t shared_bytes_ = 0;
  Shared* shared_ = nullptr;
  std::vector<Child> children_;
};

}  // namespace moetail::cli
