// SPDX-License-Identifier: Apache-2.0
// The rows that every variant of a call has to leave, bit for bit: those of the first one that the oracle passes. So a variant with other bits is
// wrong, or breaks the rule that no mode and no kernel's setting changes one; and the others need no oracle, which takes milliseconds a row.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/inputs.hpp"
#include "cli/judge.hpp"
#include "cli/weights.hpp"

namespace moetail::cli {

class ReferenceRows {
 public:
  /// Both are viewed.
  ReferenceRows(std::span<const LayerWeights> weights, const Inputs& inputs)
      : weights_(weights), inputs_(inputs) {}

  /// What is wrong with `rows` [layers, B, H] of a whole step in `mode`; empty: nothing.
  std::string mismatch(std::span<const Bf16> rows, Mode mode);
  /// The same of the last layer's rows [B, H], where a step has passed before.
  std::string mismatch_of_last(std::span<const Bf16> rows, Mode mode) const;

 private:
  std::string difference(std::span<const Bf16> rows, Mode mode, std::size_t layer, const char* what) const;

  std::span<const LayerWeights> weights_;
  const Inputs& inputs_;
  std::vector<Bf16> rows_;  // empty until the oracle has passed a variant
};

}  // namespace moetail::cli
