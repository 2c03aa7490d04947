// SPDX-License-Identifier: Apache-2.0
// From measured times of modes to the mode table that serves them best.
#pragma once

#include <string>
#include <vector>

#include "moetail/policy.hpp"

namespace moetail::cli {

/// What the table chooses between, measured side by side for one (T, B): median us of a layer.
struct ModeTimes {
  int ranks = 0;
  int batch = 0;
  double front_us = 0;
  double publish_us = 0;  ///< every rank, or cluster, sums for itself
  double sharing_us = 0;  ///< publish with shared rows
};

/// The table with the least time lost against the fastest way at each (T, B), all of them counted alike: for each T the largest batch that
/// front serves, and the batch from which publish shares. Limits are measured batches; a T without times keeps what `base` says. Of
/// equal tables the one that leaves front, and publish without sharing, the most batches.
Policy choose_policy(const std::vector<ModeTimes>& times, const Policy& base);

/// What `policy` costs over the fastest way at each of `times`, in the mean: 0 when it always takes that.
double loss_of(const Policy& policy, const std::vector<ModeTimes>& times);

/// The text of a policy file (docs/integration.md) that says the same.
std::string policy_text(const Policy& policy);

}  // namespace moetail::cli
