// SPDX-License-Identifier: Apache-2.0
// Where a layer's time goes on a GPU: from the spans of every warp of every call to one number a phase.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/trace.hpp"

namespace moetail::cli {

struct PhaseTime {
  std::string name;
  double us = 0;
};

/// Of spans as a GPU's trace has them: for each phase that occurs, in the order in which a warp comes by, the median over layers (calls) of the mean
/// over the compute warps of all of a rank's blocks; a warp that did not come by a phase counts as 0. A block's last warp is its side warp, which does
/// other things: of it only what it alone does, which of few tokens is the exchange's wait and the output, behind the others' product. So phases add
/// up to what a usual layer took.
std::vector<PhaseTime> phase_times(std::span<const Trace::Span> spans);

}  // namespace moetail::cli
