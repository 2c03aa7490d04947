// SPDX-License-Identifier: Apache-2.0
// How far an honest row may be from the oracle. docs/verification.md derives every term and shows measured
// ratios.
#pragma once

#include "verify/oracle.hpp"

namespace moetail::verify {

/// The contract's limits on a row's ||error|| / ||W n + s|| for K3's sizes, and what a residual adds for each
/// ||out||.
inline constexpr double kK3Limit = 3.0e-3;
inline constexpr double kK3TwoshotLimit = 3.5e-3;
inline constexpr double kResidualRounding = 0x1p-9;

/// Natural logarithm of the odds against a false alarm that the statistical terms allow for: e^-16 = 1.1e-7 a
/// row.
inline constexpr double kLogOdds = 16.0;

/// Euclidean norms of one row over the columns whose expectation is finite.
struct RowNorms {
  int columns = 0;              ///< N
  double reference = 0;         ///< ||W n + s||
  double product = 0;           ///< ||W n + s|| + ||s||, an upper limit of ||W n||
  double out = 0;               ///< ||out||, with the residual
  double half_ulps = 0;         ///< norm of half_ulp_bf16(out)
  double rounding_columns = 1;  ///< columns that share ||half_ulps||, N where they are equal
  double underflow = 0;         ///< 2^-134 * sqrt(number of elements that are not 0)
};

/// Norms of row `token`.
RowNorms row_norms(const Expectation& expectation, int token);

/// The formula for any size: the largest ||error|| of row `token`, from its input norms, lengths and type.
double formula_error(const Expectation& expectation, int token, const RowNorms& norms);

/// The limit that the row is judged by: the contract's constants at K3's sizes, the formula elsewhere.
/// Absolute.
double allowed_error(const Expectation& expectation, int token, const RowNorms& norms);

}  // namespace moetail::verify
