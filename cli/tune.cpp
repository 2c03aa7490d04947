// SPDX-License-Identifier: Apache-2.0
#include "cli/tune.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

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

nlohmann::ordered_json choice_json(const KernelChoice& choice) {
  nlohmann::ordered_json object;
  if (choice.trigger != KernelChoice::kOwnTrigger)
    object["trigger"] = kTriggerNames[static_cast<std::size_t>(choice.trigger)];
  const std::pair<const char*, int> numbers[] = {{"row_block", choice.row_block},
                                                 {"tile", choice.tile},
                                                 {"stages", choice.stages},
                                                 {"warps", choice.warps}};
  for (const auto& [name, value] : numbers)
    if (value != KernelChoice::kOwn) object[name] = value;
  return object;
}

}  // namespace

std::size_t ModeTimes::fastest() const {
  const double us[] = {front_us, publish_us, sharing_us};
  return static_cast<std::size_t>(std::min_element(std::begin(us), std::end(us)) - std::begin(us));
}

Policy way_policy(const Way& way, const Policy& base) {
  Policy policy = base;
  policy.front_up_to.fill(way.mode == Mode::front ? protocol::kMaxCapacity : 0);
  policy.share_from = way.share_from;
  return policy;
}

Policy with_kernels(Policy policy, const std::vector<WayKernel>& kernels) {
  std::map<std::pair<std::size_t, std::size_t>, int> largest;
  for (const WayKernel& one : kernels) {
    const std::size_t bucket = bucket_index(one.batch), ranks = Policy::rank_index(one.ranks);
    if (bucket == kBatchBuckets.size()) continue;
    int& of_bucket = largest[{ranks, bucket}];
    if (one.batch < of_bucket) continue;
    of_bucket = one.batch;
    const Way& way = kWays[one.way];
    const bool is_served = policy.serves(one.ranks, kBatchBuckets[bucket], way.mode, way.shares());
    policy.cuda_kernels[ranks][bucket] = is_served ? one.kernel : KernelChoice{};
  }
  return policy;
}

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
  for (std::size_t i = 0; i < kRankCounts.size(); ++i)
    for (std::size_t bucket = 0; bucket < kBatchBuckets.size(); ++bucket)
      if (const KernelChoice& choice = policy.cuda_kernels[i][bucket]; choice != KernelChoice{})
        json["cuda_kernels"][std::to_string(kRankCounts[i])][std::to_string(kBatchBuckets[bucket])] =
            choice_json(choice);
  return json.dump(2) + "\n";
}

}  // namespace moetail::cli
