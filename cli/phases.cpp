// SPDX-License-Identifier: Apache-2.0
#include "cli/phases.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "bench/cuda/phase_names.hpp"
#include "bench/statistics.hpp"

namespace moetail::cli {
namespace {

/// Of one call of one rank.
struct TracedCall {
  std::map<std::string, double> total_us;  // by phase
  std::set<int> threads;                   // compute warps that left a span
};

}  // namespace

std::vector<PhaseTime> phase_times(std::span<const Trace::Span> spans) {
  int side_warp = 0;
  for (const Trace::Span& span : spans) side_warp = std::max(side_warp, span.thread % Trace::kBlockWarps);
  std::map<std::pair<int, std::uint64_t>, TracedCall> calls;
  for (const Trace::Span& span : spans) {
    if (span.thread % Trace::kBlockWarps == side_warp) continue;
    TracedCall& call = calls[{span.rank, span.call}];
    call.total_us[span.name] += span.end_us - span.begin_us;
    call.threads.insert(span.thread);
  }
  std::vector<PhaseTime> phases;
  for (const std::string& name : bench::phase_names()) {
    std::vector<double> us;
    bool occurs = false;
    for (const auto& [key, call] : calls) {
      const auto found = call.total_us.find(name);
      occurs = occurs || found != call.total_us.end();
      us.push_back(found == call.total_us.end() ? 0
                                                : found->second / static_cast<double>(call.threads.size()));
    }
    if (occurs) phases.push_back({name, bench::median(us)});
  }
  return phases;
}

}  // namespace moetail::cli
