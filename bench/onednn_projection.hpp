// SPDX-License-Identifier: Apache-2.0
// oneDNN's ways to multiply with the up projection, and the fastest of them for a batch.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <vector>

#include "bench/baseline.hpp"

namespace moetail::bench {

/// One way to compute [B, L] x [L, H] -> [B, H] fp32, with the layers' weights as it wants them.
struct Projection {
  std::string name;
  dnnl::primitive primitive;
  std::vector<dnnl::memory> weights;  ///< a reordered copy, or a view of the layer's own
};

/// Tries matmul and inner product with weights in the layout that each chooses, and inner product with weights as they are, in
/// turn; keeps the one whose lower quartile over all layers is least. Throws dnnl::error where none runs.
Projection fastest_projection(const dnnl::engine& engine, const BaselineSpec& spec,
                              const dnnl::memory& operand, const dnnl::memory& product);

}  // namespace moetail::bench
