// SPDX-License-Identifier: Apache-2.0
// One call of the tail as the judges see it: every rank's inputs, and the weights, with no mailbox between
// them.
#pragma once

#include <span>

#include "protocol/mode.hpp"
#include "protocol/shape.hpp"
#include "protocol/words.hpp"

namespace moetail::verify {

using protocol::i32;
using protocol::Shape;
using protocol::u16;
using protocol::u32;
using protocol::u64;

/// What one rank brings to a call; all arrays are bf16 bits unless said, row-major and contiguous. Which
/// fields count is the form's: expanded reads `rows` and `weights`; permuted reads `map` too; partial reads
/// `partial`; published (whatever the producer started from) reads `partial` where there is one, else `map`
/// if there is one, and `rows`.
struct RankInput {
  Form form = Form::expanded;
  int top_k = 0;                  ///< K, columns of `map` and `weights`
  const u16* rows = nullptr;      ///< [num_rows, L]; expanded: num_rows = B*K, row b*K + k
  int num_rows = 0;               ///< P; may be 0
  const i32* map = nullptr;       ///< [B, K], negative: dropped route, which is skipped
  const void* weights = nullptr;  ///< [B, K] bf16 or fp32
  WeightType weight_type = WeightType::fp32;
  const u16* partial = nullptr;   ///< [B, L]
  const u16* shared = nullptr;    ///< [B, H], this rank's partial of the shared experts
  const u16* residual = nullptr;  ///< [B, H] or null; the same values on every rank, rank 0's are read
};

/// All of one call. `ranks[r]` is rank r; its length is shape.ranks.
struct Problem {
  Shape shape;
  int batch = 0;         ///< B, at least 1 (the capacity does not concern the judges)
  bool twoshot = false;  ///< x is rounded to bf16 by its owner
  std::span<const RankInput> ranks;
  const u16* w_up = nullptr;   ///< [H, L]
  const u16* gamma = nullptr;  ///< [L]
};

/// Throws Error(invalid_argument) that names the field, its value and what is accepted when `problem` cannot
/// be judged: a broken shape rule, a wrong number of ranks, a missing array, a map entry beyond the rows.
void check_problem(const Problem& problem);

/// Where route (token, k) of `input` finds its row, or null for a dropped route. For forms with rows only.
const u16* route_row(const RankInput& input, const Shape& shape, int token, int k);

/// The weight of route (token, k) as fp32.
float route_weight(const RankInput& input, int token, int k);

/// True where `input` comes as a finalized partial.
inline bool has_partial(const RankInput& input) {
  return input.form == Form::partial || (input.form == Form::published && input.partial != nullptr);
}

/// True for the sizes that the fixed bounds of the contract speak of.
inline bool is_k3(const Shape& shape) {
  return shape.hidden == 7168 && shape.latent == 3584;
}

}  // namespace moetail::verify
