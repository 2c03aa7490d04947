// SPDX-License-Identifier: Apache-2.0
// The least time that a layer can take on this machine, from its plan and the machine's measured ceilings.
#pragma once

#include <algorithm>
#include <string>

#include "moetail/policy.hpp"

namespace moetail::cli {

/// What all cores together do at best.
struct Ceilings {
  double bytes_per_second = 0;  ///< reading memory
  double flops_per_second = 0;  ///< bf16 products with fp32 sums, a multiply-add counting two
  int threads = 1;
  std::string target;       ///< dispatch target of the arithmetic
  bool is_measured = true;  ///< false: as MOETAIL_CEILINGS says
};

/// Measures in about a second, in which the machine should be idle, or takes them from MOETAIL_CEILINGS. Throws
/// Code::invalid_argument if that is ill-formed.
Ceilings find_ceilings();

/// Lower limits of a layer's time, each by itself.
struct Floor {
  double bytes_us = 0;  ///< bytes at the measured bandwidth
  double flops_us = 0;  ///< plan.flops at the measured bf16 peak; 0 on a GPU, where it is no limit
  double chain_us = 0;  ///< of a GPU: what has to happen one after the other, whatever the bytes

  double us() const { return std::max({bytes_us, flops_us, chain_us}); }
};

inline Floor floor_of(const Plan& plan, const Ceilings& ceilings) {
  return {1e6 * static_cast<double>(plan.floor_bytes()) / ceilings.bytes_per_second,
          1e6 * static_cast<double>(plan.flops) / ceilings.flops_per_second, 0};
}

/// The formula and its measured constants, for people.
std::string floor_text(const Ceilings& ceilings);

}  // namespace moetail::cli
