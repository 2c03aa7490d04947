// SPDX-License-Identifier: Apache-2.0
// Order statistics of samples.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace moetail::bench {

/// The smallest sample that at least `share` (0 to 1) of all samples do not exceed; 0 where there is none.
inline double quantile(std::vector<double> samples, double share) {
  if (samples.empty()) return 0;
  const double rank = std::max(std::ceil(share * static_cast<double>(samples.size())), 1.0);
  const auto place = samples.begin() + static_cast<std::ptrdiff_t>(rank) - 1;
  std::nth_element(samples.begin(), place, samples.end());
  return *place;
}

inline double median(std::vector<double> samples) {
  return quantile(std::move(samples), 0.5);
}

}  // namespace moetail::bench
