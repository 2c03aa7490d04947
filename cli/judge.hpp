// SPDX-License-Identifier: Apache-2.0
// Checks the output of every step: all ranks against each other, every step against the one with the same inputs, and rows
// against the float64 oracle.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cli/inputs.hpp"
#include "cli/weights.hpp"
#include "verify/compare.hpp"

namespace moetail::cli {

/// What has been found. A row of `rows_*` is the output of one token in one layer and step.
struct Checks {
  bool ranks_equal = true;   ///< every rank's rows have rank 0's bits, in every step
  bool repeat_equal = true;  ///< and rank 0's those of two steps before, which had the same inputs
  bool modes_equal = true;   ///< and those that another mode of the same numeric contract gave
  bool within_bound = true;  ///< rows that were compared with the oracle
  double worst_error = 0;    ///< relative L2 error of the row nearest to its bound, or beyond it
  double worst_bound = 0;    ///< its bound
  double worst_ratio = -1;   ///< error over bound; -1: no row has been compared
  int worst_step = -1, worst_layer = -1, worst_token = -1;
  std::uint64_t rows_checked = 0;
  std::uint64_t rows_total = 0;
  std::uint64_t output_hash = 0;  ///< of the last two steps; equal bits give equal hashes
  std::string first_mismatch;     ///< where, and what was expected; empty where all passed

  bool passed() const {
    return ranks_equal && repeat_equal && modes_equal && within_bound && rows_checked > 0;
  }
  /// Keeps the first one.
  void note_mismatch(std::string text) {
    if (first_mismatch.empty()) first_mismatch = std::move(text);
  }
};

/// Counts a comparison with the oracle. `step`, `layer` and `first_token` say where `report`'s rows come from.
void note_report(Checks& checks, const verify::RowReport& report, int step, int layer, int first_token);

/// The inputs of `num_tokens` tokens from `first` on, as a smaller call has them. Permuted rows stay where the map says.
verify::RankInput from_token(const verify::RankInput& input, const Shape& shape, int first, int num_tokens);

/// Where a step's rows are: [B, H] for each layer and rank.
class StepOutput {
 public:
  virtual ~StepOutput() = default;
  virtual std::span<const Bf16> output(int position, int rank) const = 0;
};

/// The first and the last step are compared with the oracle whole, of the others kSampledRows rows each, chosen by the seed.
class Judge {
 public:
  static constexpr int kSampledRows = 4;

  /// `weights` and `inputs` are viewed. `mode`: what runs; `steps`: how many there will be.
  Judge(std::span<const LayerWeights> weights, const Inputs& inputs, Mode mode, int steps);

  /// Step number `step`, in order from 0 on.
  void check_step(const StepOutput& output, int step);

  // The parts of it, for who looks at some rows only.
  /// The tokens from `first_token` on of `rows`, a layer's whole output [B, H], against the oracle.
  void compare_with_oracle(std::span<const Bf16> rows, int step, int position, int first_token,
                           int num_tokens);
  /// A layer's rows that have to be the bits of `earlier`; `what` says whose those are.
  void compare_with_earlier(std::span<const Bf16> rows, std::span<const Bf16> earlier, int step, int position,
                            const std::string& what);
  /// What kept the rows from being there at all.
  void note_failure(std::string text);

  const Checks& checks() const { return checks_; }

 private:
  void compare_ranks(const StepOutput& output, int step, int position);
  void compare_repeat(std::span<const Bf16> rows, int step, int position);
  std::string place(int step, int position) const;

  std::span<const LayerWeights> weights_;
  const Inputs& inputs_;
  bool twoshot_;
  int steps_;
  std::array<std::vector<Bf16>, 2> earlier_;  ///< rank 0's rows of the last even and odd step, [layers, B, H]
  Checks checks_;
};

}  // namespace moetail::cli
