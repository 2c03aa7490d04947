// SPDX-License-Identifier: Apache-2.0
#include "cli/phases.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "bench/cuda/phase_names.hpp"
#include "bench/statistics.hpp"

namespace moetail::cli {
namespace {

/// Of one call of one rank: some of its warps.
struct TracedWarps {
  std::map<std::string, double> total_us;  // by phase
  std::set<int> threads;                   // that left a span

  void add(const Trace::Span& span) {
    total_us[span.name] += span.end_us - span.begin_us;
    threads.insert(span.thread);
  }
};
using TracedCalls = std::map<std::pair<int, std::uint64_t>, TracedWarps>;

/// The median over calls of the mean over the warps; nothing where no warp came by the phase.
std::optional<double> median_of(const TracedCalls& calls, const std::string& name) {
  std::vector<double> us;
  bool occurs = false;
  for (const auto& [key, warps] : calls) {
    const auto found = warps.total_us.find(name);
    occurs = occurs || found != warps.total_us.end();
    us.push_back(found == warps.total_us.end() ? 0
                                               : found->second / static_cast<double>(warps.threads.size()));
  }
  return occurs ? std::optional(bench::median(us)) : std::nullopt;
}

}  // namespace

std::vector<PhaseTime> phase_times(std::span<const Trace::Span> spans) {
  int side_warp = 0;
  for (const Trace::Span& span : spans) side_warp = std::max(side_warp, span.thread % Trace::kBlockWarps);
  TracedCalls compute, side;
  for (const Trace::Span& span : spans)
    (span.thread % Trace::kBlockWarps == side_warp ? side : compute)[{span.rank, span.call}].add(span);
  std::vector<PhaseTime> phases;
  for (const std::string& name : bench::phase_names()) {
    auto us = median_of(compute, name);
    if (!us) us = median_of(side, name);
    if (us) phases.push_back({name, *us});
  }
  return phases;
}

}  // namespace moetail::cli
