// SPDX-License-Identifier: Apache-2.0
// All executions of a program, one after the other.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "verify/explore/machine.hpp"

namespace moetail::explore {

struct SearchLimits {
  long executions = 1'000'000;
  double seconds = 600;
};

struct SearchResult {
  long executions = 0;
  long states = 0;        ///< events, each counted once however many executions begin with it
  int depth = 0;          ///< events of the longest execution
  bool complete = false;  ///< every execution was looked at
  int late_looks = 0;     ///< looks at control words that raced, and were therefore made late as well
  double seconds = 0;
  std::optional<Violation> violation;
  std::vector<std::string> trace;  ///< of the violation
};

/// Ends at the first violation. `ordered_add`: GraphMachine's.
SearchResult search(const Program& program, bool ordered_add, const SearchLimits& limits);

}  // namespace moetail::explore
