// SPDX-License-Identifier: Apache-2.0
// From measured times of modes to the mode table that serves them best.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "moetail/policy.hpp"

namespace moetail::cli {

/// One way to run a call: a mode, and from which batch publish shares.
struct Way {
  const char* name;
  Mode mode;
  int share_from;

  bool shares() const { return share_from == 1; }
};
inline constexpr std::array<Way, 3> kWays = {{{"front", Mode::front, protocol::kMaxCapacity},
                                              {"publish", Mode::publish, protocol::kMaxCapacity},
                                              {"sharing", Mode::publish, 1}}};

/// `base` with every batch of every T served that way.
Policy way_policy(const Way& way, const Policy& base);

/// What the table chooses between, measured side by side for one (T, B): median us of a layer; infinite for a way that cannot be built here.
struct ModeTimes {
  int ranks = 0;
  int batch = 0;
  double front_us = 0;
  double publish_us = 0;  ///< every rank, or cluster, sums for itself
  double sharing_us = 0;  ///< publish with shared rows

  /// The place in kWays.
  std::size_t fastest() const;
};

/// What was found for one (T, B): a kernel of the way that was the fastest there.
struct WayKernel {
  int ranks = 0;
  int batch = 0;
  std::size_t way = 0;  ///< of kWays
  KernelChoice kernel;
};

/// `policy` with those of `kernels` that it will launch: the table serves a bucket in one way, and a kernel that was measured in another is of no
/// use there. Of several batches of one bucket the largest decides. What was not measured keeps what `policy` says.
Policy with_kernels(Policy policy, const std::vector<WayKernel>& kernels);

/// The table with the least time lost against the fastest way at each (T, B), all of them counted alike: for each T the largest batch that
/// front serves, and the batch from which publish shares. Limits are measured batches; a T without times keeps what `base` says. Of
/// equal tables the one that leaves front, and publish without sharing, the most batches.
Policy choose_policy(const std::vector<ModeTimes>& times, const Policy& base);

/// What `policy` costs over the fastest way at each of `times`, in the mean: 0 when it always takes that.
double loss_of(const Policy& policy, const std::vector<ModeTimes>& times);

/// The text of a policy file (docs/integration.md) that says the same.
std::string policy_text(const Policy& policy);

}  // namespace moetail::cli
