// SPDX-License-Identifier: Apache-2.0
// The quantities that the numeric contract fixes to the bit: partial, x, gather, the shared sum, the sum of
// squares. Any NaN equals any other (compare with NanRule::any_nan).
#pragma once

#include <vector>

#include "verify/problem.hpp"

namespace moetail::verify {

/// Rank `rank`'s partial [B, L], bf16: finalized by the contract's grouping, or as given.
std::vector<u16> exact_partial(const Problem& problem, int rank);

/// All partials [T, B, L], over `threads` threads (0: as many as the work is worth).
std::vector<u16> exact_partials(const Problem& problem, int threads = 0);

/// The all-reduced latent [B, L]: fp32 sum of the partials in rank order, before two-shot's rounding.
std::vector<float> exact_x(const Problem& problem);

/// Two-shot's gathered latent [B, L]: exact_x rounded once to bf16.
std::vector<u16> exact_gather(const Problem& problem);

/// The shared experts' sum [B, H]: fp32 in rank order.
std::vector<float> exact_shared(const Problem& problem);

/// Sum of squares of `x[0, latent)` in fp32, in the order that protocol::kSquareLanes states.
float exact_square_sum(const float* x, int latent);

/// The fp32 chain between x and the up projection of one token: scale = 1 / sqrt(mean(x^2) + eps) and
/// operand[c] = bf16(gamma[c] * x[c]), which is written to `operand` [L].
float exact_norm(const float* x, const u16* gamma, const Shape& shape, u16* operand);

}  // namespace moetail::verify
