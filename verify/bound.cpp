// SPDX-License-Identifier: Apache-2.0
// The bound of a row's error, term by term.
#include "verify/bound.hpp"

#include <algorithm>
#include <cmath>

namespace moetail::verify {
namespace {

/// ||W d|| for operand errors d, |d_i| <= u_i: that of the contract's own rounding, and for an implementation
/// that rounds other values, the likely one of independent uniform d.
double operand_error(const RowFacts& facts, int columns) {
  if (facts.operand_square == 0) return 0;
  // 1/N + 1/L_eff: what the spectrum of a matrix with unrelated columns concentrates by.
  const double latent = facts.operand_square * facts.operand_square / facts.operand_fourth;
  const double spread = kLogOdds * (1.0 / columns + 1.0 / latent);
  const double likely = std::sqrt(facts.operand_square / 3 * (1 + 2 * std::sqrt(spread) + 4 * spread));
  return std::max(facts.operand_actual, std::min(likely, facts.operand_reach));
}

/// ||e|| for the rounding of the output to bf16.
double rounding_error(const RowFacts& facts, const RowNorms& norms) {
  if (norms.half_ulps == 0) return 0;
  // Where the product moves a value over less than the spacing of bf16, the remainders are those of sums of
  // bf16 numbers: often exact ties, never uniform.
  if (facts.walk_square < norms.half_ulps * norms.half_ulps) return norms.half_ulps;
  // Bernstein's inequality for squares of uniform remainders: mean 1/3, variance 4/45, at most 1.
  const double spread = kLogOdds / norms.rounding_columns;
  return norms.half_ulps * std::sqrt(std::min(1.0, 1.0 / 3 + std::sqrt(8.0 / 45 * spread) + spread / 3));
}

}  // namespace

RowNorms row_norms(const Expectation& expectation, int token) {
  const std::size_t width = expectation.columns.size();
  const double* out = expectation.out.data() + static_cast<std::size_t>(token) * width;
  const double* without = expectation.without_residual.data() + static_cast<std::size_t>(token) * width;
  RowNorms norms;
  double reference = 0, whole = 0, ulps = 0, fourth = 0;
  int nonzero = 0;
  for (std::size_t j = 0; j < width; ++j) {
    if (!std::isfinite(out[j])) continue;
    ++norms.columns;
    reference += without[j] * without[j];
    whole += out[j] * out[j];
    // A value just below a power of two may be rounded from above it.
    const double half = half_ulp_bf16(out[j] * (1 + 0x1p-8));
    ulps += half * half;
    fourth += half * half * half * half;
    nonzero += out[j] != 0;
  }
  norms.reference = std::sqrt(reference);
  norms.out = std::sqrt(whole);
  norms.half_ulps = std::sqrt(ulps);
  norms.rounding_columns = fourth > 0 ? ulps * ulps / fourth : 1;
  norms.product =
      norms.reference + std::sqrt(expectation.rows[static_cast<std::size_t>(token)].shared_square);
  norms.underflow = 0x1p-134 * std::sqrt(nonzero);
  return norms;
}

double formula_error(const Expectation& expectation, int token, const RowNorms& norms) {
  if (norms.columns == 0) return 0;
  const RowFacts& facts = expectation.rows[static_cast<std::size_t>(token)];
  const double operand = operand_error(facts, norms.columns);
  const double rounding = rounding_error(facts, norms);
  const double alignment = std::min(1.0, std::sqrt(2 * kLogOdds / norms.columns));
  const double bf16 = std::sqrt(operand * operand + rounding * rounding + 2 * alignment * operand * rounding);
  const double walk = std::max(std::sqrt(facts.walk_square), norms.product);
  const double fp32 = (std::sqrt(expectation.shape.latent) + 16) * walk +
                      expectation.shape.ranks * std::sqrt(facts.shared_square) +
                      2 * (norms.reference + norms.out);
  return bf16 + kFp32Rounding * fp32;
}

double allowed_error(const Expectation& expectation, int token, const RowNorms& norms) {
  if (!is_k3(expectation.shape)) return formula_error(expectation, token, norms) + norms.underflow;
  const double limit = expectation.twoshot ? kK3TwoshotLimit : kK3Limit;
  const double residual = expectation.has_residual ? kResidualRounding * norms.out : 0.0;
  return limit * norms.reference + residual + norms.underflow;
}

}  // namespace moetail::verify
