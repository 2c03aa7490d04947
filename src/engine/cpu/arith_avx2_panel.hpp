// SPDX-License-Identifier: Apache-2.0
// The avx2 target's dot for batches that are bound by arithmetic rather than by the stream of weights.
#pragma once

#include "engine/cpu/arith.hpp"

namespace moetail::cpu {

/// A panel takes up to kPanelTokens tokens and the same time for fewer of them. From kFewestPanelTokens on that is less
/// than register tiles over bf16 take (docs/cpu-arithmetic.md).
inline constexpr int kPanelTokens = 16;
inline constexpr int kFewestPanelTokens = 9;

/// Arith::dot for 1 to kPanelTokens tokens, with the bits of the avx2 target. Needs AVX2 and FMA. Keeps scratch of each
/// calling thread, about 64 bytes a column of `latent` and 280 KB, and throws std::bad_alloc where there is none.
void avx2_panel_dot(const Bf16* weights, const Bf16* operand, int latent, int num_rows, int num_tokens,
                    float* dot, int dot_pitch);

}  // namespace moetail::cpu
