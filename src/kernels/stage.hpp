// SPDX-License-Identifier: Apache-2.0
// The stages of a tail that an experiment can leave out or do twice (kernels/ablation.hpp), for kernels and for the host.
#pragma once

namespace moetail::kernels {

enum class Stage : int {
  weights,       ///< the copies of the up projection's rows
  rows,          ///< finalize's loads
  publication,   ///< the partial's stores
  push,          ///< shared shards
  rearm,         ///< of the previous call's slot
  header,        ///< its store and its check
  sums,          ///< two-shot, shared rows: what a block sums for the others
  polls,         ///< of latents, or of rows that were summed elsewhere
  shared_polls,  ///< of the shared partials
  product,       ///< of the matrix unit
  exchange,      ///< partial products and squares to their owners, and the wait for them
  output,        ///< the sum of the slices, norm, shared, and the row's stores
  epoch,         ///< control words and arrivals; left out: every call is the first
  deadlines,     ///< the looks at clock, poison and stop word; left out: a wait has no end
  faults         ///< the fault record's writing
};
inline constexpr const char* kStageNames[] = {"weights",  "rows",   "publication", "push",         "re-arm",
                                              "header",   "sums",   "polls",       "shared polls", "product",
                                              "exchange", "output", "epoch",       "deadlines",    "faults"};
inline constexpr int kStages = static_cast<int>(Stage::faults) + 1;

constexpr unsigned stage_bit(Stage stage) {
  return 1u << static_cast<int>(stage);
}

}  // namespace moetail::kernels
