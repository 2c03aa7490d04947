// SPDX-License-Identifier: Apache-2.0
// The contract end to end in plain scalar fp32, one value after the other: an honest implementation with
// nothing clever in it, which shows that the judge's bound can be kept. Engines may add up dot products in
// another order.
#pragma once

#include <span>
#include <vector>

#include "verify/problem.hpp"

namespace moetail::verify {

/// The output [B, H] bf16 that every rank would hold. `rank_order`: the order in which ranks are added, none
/// for 0..T-1; any other order breaks the contract, which is what negative controls want.
std::vector<u16> emulate(const Problem& problem, std::span<const int> rank_order = {});

}  // namespace moetail::verify
