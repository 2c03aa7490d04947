// SPDX-License-Identifier: Apache-2.0
// Comparisons and the text that reports them.
#include "verify/compare.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/error.hpp"
#include "protocol/numerics.hpp"
#include "verify/bound.hpp"

namespace moetail::verify {
namespace {

using protocol::f32_from_bf16;

float as_float(u32 bits, int width) {
  return protocol::float_from_bits(width == 16 ? bits << 16 : bits);
}

u32 bits_of(u16 value) {
  return value;
}
u32 bits_of(float value) {
  return protocol::bits_from_float(value);
}
bool is_nan(u16 value) {
  return (value & 0x7FFFu) > 0x7F80u;
}
bool is_nan(float value) {
  return std::isnan(value);
}

template <typename T>
BitReport compare(std::span<const T> expected, std::span<const T> seen, int columns, int rank, NanRule rule) {
  if (columns < 1 || expected.size() % static_cast<std::size_t>(columns) != 0)
    base::bad_argument("columns", columns, fmt::format("a divisor of expected.size() = {}", expected.size()));
  if (seen.size() != expected.size())
    base::bad_argument("seen.size()", seen.size(), fmt::format("expected.size() = {}", expected.size()));
  BitReport report;
  report.compared = expected.size();
  report.element_bits = static_cast<int>(8 * sizeof(T));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (bits_of(expected[i]) == bits_of(seen[i])) continue;
    if (rule == NanRule::any_nan && is_nan(expected[i]) && is_nan(seen[i])) continue;
    if (report.mismatches++ > 0) continue;
    report.rank = rank;
    report.token = static_cast<int>(i / static_cast<std::size_t>(columns));
    report.column = static_cast<int>(i % static_cast<std::size_t>(columns));
    report.expected = bits_of(expected[i]);
    report.seen = bits_of(seen[i]);
  }
  return report;
}

enum class Class { number, nan, plus_infinity, minus_infinity };

Class class_of(float value) {
  if (std::isnan(value)) return Class::nan;
  if (std::isinf(value)) return value > 0 ? Class::plus_infinity : Class::minus_infinity;
  return Class::number;
}

/// Whether a value of class `seen` may stand for `expected`. Within one part in 64 of the largest bf16 number
/// either side of the border to infinity is right, because the errors that the bound allows cross it.
bool class_fits(double expected, Class seen) {
  constexpr double kBorder = 0x1p128;
  if (std::abs(expected) > kBorder * (1 - 0x1p-6) && std::isfinite(expected) && seen != Class::nan)
    return seen == Class::number || (seen == Class::plus_infinity) == (expected > 0);
  return class_of(static_cast<float>(expected)) == seen;
}

}  // namespace

BitReport compare_bits(std::span<const u16> expected, std::span<const u16> seen, int columns, int rank,
                       NanRule rule) {
  return compare(expected, seen, columns, rank, rule);
}

BitReport compare_bits(std::span<const float> expected, std::span<const float> seen, int columns, int rank,
                       NanRule rule) {
  return compare(expected, seen, columns, rank, rule);
}

BitReport compare_ranks(std::span<const std::span<const u16>> ranks, int columns) {
  BitReport total;
  if (ranks.empty()) return total;
  total.compared = ranks[0].size();
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    const BitReport report = compare_bits(ranks[0], ranks[r], columns, static_cast<int>(r));
    const u64 mismatches = total.mismatches + report.mismatches;
    const u64 compared = total.compared + report.compared;
    if (total.mismatches == 0 && report.mismatches > 0) total = report;
    total.mismatches = mismatches;
    total.compared = compared;
  }
  return total;
}

std::string BitReport::text() const {
  if (compared == 0) return "nothing compared";
  if (mismatches == 0) return fmt::format("{} elements equal", compared);
  return fmt::format(
      "{} of {} elements differ, first at rank {} token {} column {}: expected {:#0{}x} ({:g}), seen "
      "{:#0{}x} ({:g})",
      mismatches, compared, rank, token, column, expected, element_bits / 4 + 2,
      as_float(expected, element_bits), seen, element_bits / 4 + 2, as_float(seen, element_bits));
}

int ulp_distance_bf16(u16 a, u16 b) {
  if (is_nan(a) || is_nan(b)) return is_nan(a) && is_nan(b) ? 0 : 65536;
  const auto position = [](u16 bits) {
    return (bits & 0x8000u) ? -static_cast<int>(bits & 0x7FFFu) : static_cast<int>(bits);
  };
  return std::abs(position(a) - position(b));
}

RowReport check_rows(const Expectation& expectation, std::span<const u16> out, int rank, double slack) {
  const std::size_t hidden = static_cast<std::size_t>(expectation.shape.hidden);
  const std::size_t width = expectation.columns.size();
  if (out.size() != static_cast<std::size_t>(expectation.batch) * hidden)
    base::bad_argument(
        "out.size()", out.size(),
        fmt::format("batch * hidden = {}", static_cast<std::size_t>(expectation.batch) * hidden));
  RowReport report;
  report.rank = rank;
  for (int token = 0; token < expectation.batch; ++token) {
    const double* expected = expectation.out.data() + static_cast<std::size_t>(token) * width;
    const u16* row = out.data() + static_cast<std::size_t>(token) * hidden;
    double square = 0, largest = -1;
    std::size_t worst = 0;
    for (std::size_t j = 0; j < width; ++j) {
      const u16 bits = row[expectation.columns[j]];
      const float value = f32_from_bf16(bits);
      const std::size_t index = static_cast<std::size_t>(token) * width + j;
      const bool is_open = !expectation.order_decides.empty() && expectation.order_decides[index];
      const bool fits = is_open || class_fits(expected[j], class_of(value));
      if (!fits && report.wrong_class++ == 0) {
        report.class_token = token;
        report.class_column = expectation.columns[j];
        report.class_expected = expected[j];
        report.class_seen = bits;
      }
      if (!fits || !std::isfinite(expected[j]) || !std::isfinite(value)) continue;
      const double error = std::abs(static_cast<double>(value) - expected[j]);
      square += error * error;
      if (error > largest) {
        largest = error;
        worst = j;
      }
    }
    ++report.rows;
    const RowNorms norms = row_norms(expectation, token);
    const double error = std::sqrt(square);
    const double allowed = allowed_error(expectation, token, norms) + slack * norms.reference;
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const double ratio = error == 0 ? 0 : allowed > 0 ? error / allowed : kInfinity;
    report.failed_rows += !(ratio <= 1);
    if (report.worst_token >= 0 && !(ratio > report.ratio)) continue;
    report.worst_token = token;
    report.ratio = ratio;
    report.error = error == 0 ? 0 : norms.reference > 0 ? error / norms.reference : kInfinity;
    report.bound = norms.reference > 0 ? allowed / norms.reference : allowed == 0 ? 0 : kInfinity;
    report.worst_column = largest < 0 ? -1 : expectation.columns[worst];
    report.expected = largest < 0 ? 0 : expected[worst];
    report.seen = largest < 0 ? u16{0} : row[expectation.columns[worst]];
  }
  return report;
}

std::string RowReport::text() const {
  if (rows == 0) return "no row judged";
  std::string text = fmt::format(
      "rank {}: {} of {} rows beyond the bound, worst at token {}: error {:.3e}, bound {:.3e}, largest at "
      "column {}: "
      "expected {:g}, seen {:#06x} ({:g})",
      rank, failed_rows, rows, worst_token, error, bound, worst_column, expected, seen, as_float(seen, 16));
  if (wrong_class > 0)
    text += fmt::format(
        "\n{} elements of the wrong class, first at token {} column {}: expected {:g}, seen {:#06x} ({:g})",
        wrong_class, class_token, class_column, class_expected, class_seen, as_float(class_seen, 16));
  return text;
}

}  // namespace moetail::verify
