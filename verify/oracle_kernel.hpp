// SPDX-License-Identifier: Apache-2.0
// The three loops of the oracle that take time, compiled for every vector width.
#pragma once

#include "protocol/words.hpp"

namespace moetail::verify {

/// out[c] = the bf16 partial of one token, by the grouping and the fused multiply-adds of
/// protocol/numerics.hpp: exact on every target. rows[k] is null for a dropped route. latent % 8 == 0.
void finalize_row(const protocol::u16* const* rows, const float* weights, int top_k, int latent,
                  protocol::u16* out);

/// dot[t * pitch + j] = sum over c of rows[j][c] * operand[t * latent + c], all in float64. latent % 8 == 0.
void dot_rows(const protocol::u16* const* rows, int num_rows, int latent, const double* operand,
              int num_tokens, double* dot, long pitch);

/// squares[c] += sum over j of rows[j][c]^2 in float64, leaving out NaN and Inf. latent % 8 == 0.
void add_column_squares(const protocol::u16* const* rows, int num_rows, int latent, double* squares);

}  // namespace moetail::verify
