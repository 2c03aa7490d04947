// SPDX-License-Identifier: Apache-2.0
// What is explored: each property's configurations, and for every safeguard those that have to fail without it.
#pragma once

#include <string>
#include <vector>

#include "verify/explore/config.hpp"

namespace moetail::explore {

struct Case {
  std::string name;       ///< "front.gpu"; of a control "third_slot.front.gpu"
  std::string safeguard;  ///< that the build has to leave out; empty: none
  Config config;
  bool is_large = false;  ///< more than a few seconds: for make proof, not for make test

  /// What has to be refuted: a safeguard is left out, or the configuration is wrong by itself. Anything else has to hold.
  bool is_control() const { return !safeguard.empty() || config.cuts_push_by_owner; }
};

std::vector<Case> all_cases();

}  // namespace moetail::explore
