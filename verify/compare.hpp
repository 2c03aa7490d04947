// SPDX-License-Identifier: Apache-2.0
// Comparisons that say where: bit for bit with the first mismatch, and rows against the oracle with the worst
// one.
#pragma once

#include <span>
#include <string>

#include "verify/oracle.hpp"

namespace moetail::verify {

/// Whether two NaNs of different payload are equal.
enum class NanRule { same_bits, any_nan };

/// Result of a bit comparison. Coordinates are those of the first mismatch; bits are the element's, 16 or 32
/// wide.
struct BitReport {
  u64 compared = 0;
  u64 mismatches = 0;
  int rank = -1, token = -1, column = -1;
  u32 expected = 0, seen = 0;
  int element_bits = 16;

  bool passes() const { return mismatches == 0 && compared > 0; }
  /// One line for people: count, coordinates, both values in hex and as numbers.
  std::string text() const;
};

/// Compares two buffers of rows of `columns` elements. `rank` is a label. Throws Error(invalid_argument)
/// where the sizes differ or are no whole number of rows.
BitReport compare_bits(std::span<const u16> expected, std::span<const u16> seen, int columns, int rank = 0,
                       NanRule rule = NanRule::same_bits);
BitReport compare_bits(std::span<const float> expected, std::span<const float> seen, int columns,
                       int rank = 0, NanRule rule = NanRule::same_bits);

/// Compares every rank's buffer with rank 0's; the report's rank is the first that differs.
BitReport compare_ranks(std::span<const std::span<const u16>> ranks, int columns);

/// Distance of two bf16 numbers in units of the last place: steps between neighbours, +0 and -0 being one
/// number. Two NaNs: 0; a NaN and a number: 65536.
int ulp_distance_bf16(u16 a, u16 b);

/// Result of a comparison of rows with the oracle: the row nearest to its bound or beyond it, and the first
/// element whose class (number, NaN, +Inf, -Inf) is wrong.
struct RowReport {
  int rank = 0;
  int rows = 0;         ///< rows judged
  int failed_rows = 0;  ///< rows beyond their bound
  int worst_token = -1;
  double error = 0;       ///< worst row's ||error|| / ||W n + s||; infinite where only the reference is 0
  double bound = 0;       ///< its bound in the same measure
  double ratio = 0;       ///< error over bound, 0 for an exact row
  int worst_column = -1;  ///< hidden column of the worst row's largest error
  double expected = 0;    ///< there
  u16 seen = 0;           ///< there
  u64 wrong_class = 0;    ///< elements of the wrong class
  int class_token = -1, class_column = -1;
  double class_expected = 0;
  u16 class_seen = 0;

  bool passes() const { return rows > 0 && failed_rows == 0 && wrong_class == 0; }
  /// One or two lines for people.
  std::string text() const;
};

/// Judges `out` [B, H] bf16, a rank's whole output, at the columns of `expectation`. `slack`: what each row's bound is wider by, in its measure,
/// for outputs of another contract. Throws Error(invalid_argument) where the size of `out` is not B * H.
RowReport check_rows(const Expectation& expectation, std::span<const u16> out, int rank = 0,
                     double slack = 0);

}  // namespace moetail::verify
