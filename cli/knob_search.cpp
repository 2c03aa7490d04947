// SPDX-License-Identifier: Apache-2.0
#include "cli/knob_search.hpp"

namespace moetail::cli {

std::size_t fastest(const VariantTimes& us, double least_gain) {
  std::size_t best = 0;
  if (us.empty() || !us.front()) return best;
  const double enough = *us.front() * (1 - least_gain);
  for (std::size_t i = 1; i < us.size(); ++i)
    if (us[i] && *us[i] <= enough && *us[i] < *us[best]) best = i;
  return best;
}

FoundKernel search_knobs(const KnobSearch& search, std::span<const bench::Knob> knobs) {
  const KernelChoice own;
  KernelChoice best = own;
  for (const bench::Knob knob : knobs) {
    std::vector<KernelChoice> choices = search.settings(knob, best);
    if (choices.empty()) continue;
    choices.insert(choices.begin(), best);
    best = choices[fastest(search.measure(bench::knob_name(knob), choices))];
  }
  if (best == own) return {};
  const KernelChoice both[] = {own, best};
  const VariantTimes us = search.measure("all together", both);
  return {fastest(us) == 1 ? best : own, us[0], us[1]};
}

}  // namespace moetail::cli
