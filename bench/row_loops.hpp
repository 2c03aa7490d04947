// SPDX-License-Identifier: Apache-2.0
// The steps of the oneDNN pipeline that oneDNN has no good primitive for, as plain vector loops over one row.
#pragma once

#include <cstdint>

namespace moetail::bench {

using Bf16 = std::uint16_t;

/// sum[c] = rows[0][c] + rows[1][c] + ... in fp32, in that order, for c in [0, columns); columns % 8 == 0.
void sum_rows(const Bf16* const* rows, int num_rows, int columns, float* sum);

/// out[c] = bf16(gamma[c] * x[c] / sqrt(mean(x^2) + eps)) for c in [0, columns); columns % 8 == 0.
void rms_norm_row(const float* x, const Bf16* gamma, float eps, int columns, Bf16* out);

/// out[c] = bf16(product[c] + rows[0][c] + rows[1][c] + ...), the rows summed first; residual[c] is added last where
/// there is one (else null). columns % 8 == 0.
void add_rows(const float* product, const Bf16* const* rows, int num_rows, const Bf16* residual, int columns,
              Bf16* out);

}  // namespace moetail::bench
