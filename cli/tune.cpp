// SPDX-License-Identifier: Apache-2.0
#include "cli/tune.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace moetail::cli {
namespace {

constexpr const auto& kRankCounts = Policy::kRankCounts;

double time_of(const Policy& policy, const ModeTimes& times) {
  if (times.batch <= policy.front_limit(times.ranks)) return times.front_us;
  return times.batch >= policy.share_from ? times.sharing_us : times.publish_us;
}

double best_of(const ModeTimes& times) {
  return std::min({times.front_us, times.publish_us, times.sharing_us});
}

/// Measured batches, largest first.
std::vector<int> batches_of(const std::vector<ModeTimes>& times) {
  std::set<int, std::greater<>> batches;
  for (const ModeTimes& one : times) batches.insert(one.batch);
  return {batches.begin(), batches.end()};
}

}  // namespace

double loss_of(const Policy& policy, const std::vector<ModeTimes>& times) {
  double loss = 0;
  for (const ModeTimes& one : times) loss += time_of(policy, one) / best_of(one) - 1;
  return times.empty() ? 0 : loss / static_cast<double>(times.size());
}

Policy choose_policy(const std::vector<ModeTimes>& times, const Policy& base) {
  const std::vector<int> batches = batches_of(times);
  Policy best = base;
  double least = -1;
  std::vector<int> starts = {protocol::kMaxCapacity};  // no measured batch shares
  starts.insert(starts.end(), batches.begin(), batches.end());
  for (int share_from : starts) {
    Policy policy = base;
    policy.share_from = share_from;
    for (std::size_t i = 0; i < kRankCounts.size(); ++i) {
      std::vector<ModeTimes> of_ranks;
      std::ranges::copy_if(times, std::back_inserter(of_ranks),
                           [&](const ModeTimes& one) { return one.ranks == kRankCounts[i]; });
      if (of_ranks.empty()) continue;
      double least_here = -1;
      std::vector<int> limits = batches_of(of_ranks);
      limits.push_back(0);
      for (int limit : limits) {
        Policy tried = policy;
        tried.front_up_to[i] = limit;
        const double loss = loss_of(tried, of_ranks);
        if (least_here >= 0 && loss >= least_here) continue;
        least_here = loss;
        policy.front_up_to[i] = limit;
      }
    }
    const double loss = loss_of(policy, times);
    if (least >= 0 && loss >= least) continue;
    least = loss;
    best = policy;
  }
  return best;
}

std::string policy_text(const Policy& policy) {
  nlohmann::ordered_json json;
  json["policy_version"] = policy.version;
  for (std::size_t i = 0; i < kRankCounts.size(); ++i)
    json["front_up_to"][std::to_string(kRankCounts[i])] = policy.front_up_to[i];
  json["share_from"] = policy.share_from;
  return json.dump(2) + "\n";
}

}  // namespace moetail::cli
