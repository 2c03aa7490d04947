// SPDX-License-Identifier: Apache-2.0
// The judge of a call's values: the operation of all ranks in float64, with the contract's bf16 roundings of
// partial (and of gather in two-shot) and no others. It knows no mailbox, engine or thread of a rank.
#pragma once

#include <span>
#include <vector>

#include "verify/problem.hpp"

namespace moetail::verify {

/// The largest relative error of one fp32 operation.
inline constexpr double kFp32Rounding = 0x1p-24;

/// How x and the shared sum are added over ranks. The contract's fp32 order may differ from the true sum by
/// far more than rounding where the addends cancel: inputs crafted to cancel are judged with `rank_order`.
enum class RankSum { float64, rank_order };

/// Input norms of one row, from which the bound of its error follows (docs/verification.md). J: the judged
/// columns. |W_Ji| is the norm of column i of W_up restricted to J; u_i the largest error that rounding the
/// operand to bf16 (and summing x in fp32) can make in n_i.
struct RowFacts {
  double operand_square = 0;  ///< sum over i of (u_i |W_Ji|)^2
  double operand_fourth = 0;  ///< sum over i of (u_i |W_Ji|)^4
  double operand_actual = 0;  ///< ||W_J d|| for the d that the contract's own rounding of the operand makes
  double operand_reach = 0;   ///< sum over i of u_i |W_Ji|
  double walk_square = 0;     ///< sum over i of (n_i |W_Ji|)^2
  double shared_square = 0;   ///< sum over j in J of (sum over ranks of |shared_rj|)^2, finite ones
  bool plain = false;  ///< fp32 leaves its range on the way: the row holds what plain fp32 evaluation gives
};

/// What `out` must be near to, before its rounding to bf16. A row in which fp32 arithmetic meets NaN or Inf
/// holds them where plain evaluation in the contract's order has them.
struct Expectation {
  Shape shape;
  int batch = 0;
  bool twoshot = false;
  bool has_residual = false;
  std::vector<i32> columns;              ///< J, the judged hidden columns in the order asked for
  std::vector<double> out;               ///< [B, |J|]
  std::vector<double> without_residual;  ///< [B, |J|]: W n + s
  std::vector<RowFacts> rows;            ///< [B]
  /// [B, |J|], or empty where it is true of none: the addends of the dot product are so large that it leaves fp32's range in one order of
  /// its additions and not in another. The order is the engine's own, so any class is right there.
  std::vector<bool> order_decides;
};

/// The oracle. `columns`: the hidden columns to compute (0 to H-1, any order), none for all. `threads`: 0 for
/// as many as the work is worth. Throws Error(invalid_argument) as check_problem does, and for a column out
/// of range.
Expectation expect(const Problem& problem, std::span<const i32> columns = {},
                   RankSum rank_sum = RankSum::float64, int threads = 0);

/// The bf16 number nearest to `value`, ties to even, by float64 arithmetic of its own.
double nearest_bf16(double value);

/// Half the distance of bf16 numbers around `value`: the largest error of one rounding. 0 for 0, 2^-134 in
/// the subnormal range.
double half_ulp_bf16(double value);

}  // namespace moetail::verify
