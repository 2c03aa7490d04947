// SPDX-License-Identifier: Apache-2.0
// A traced tail's phases by name, in the order in which a warp comes by.
#pragma once

#include <string>
#include <vector>

#include "kernels/trace_slot.hpp"

namespace moetail::bench {

inline std::vector<std::string> phase_names() {
  std::vector<std::string> names;
  for (int i = 1; i < kernels::kMarks; ++i)
    names.emplace_back(kernels::phase_name(static_cast<kernels::Mark>(i)));
  return names;
}

}  // namespace moetail::bench
