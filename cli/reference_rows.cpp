// SPDX-License-Identifier: Apache-2.0
#include "cli/reference_rows.hpp"

#include "cli/replay_rank.hpp"

namespace moetail::cli {

std::string ReferenceRows::mismatch(std::span<const Bf16> rows, Mode mode) {
  if (rows_.empty()) {
    Judge judge(weights_, inputs_, mode, 1);
    judge_first_run(judge, rows, static_cast<int>(weights_.size()), inputs_.spec().batch);
    if (!judge.checks().passed()) return judge.checks().first_mismatch;
    rows_.assign(rows.begin(), rows.end());
    return {};
  }
  const std::size_t size = rows.size() / weights_.size();
  for (std::size_t layer = 0; layer < weights_.size(); ++layer) {
    std::string text =
        difference(rows.subspan(layer * size, size), mode, layer, "from rows that the oracle passed");
    if (!text.empty()) return text;
  }
  return {};
}

std::string ReferenceRows::mismatch_of_last(std::span<const Bf16> rows, Mode mode) const {
  return difference(rows, mode, weights_.size() - 1, "after all replays from the first run");
}

std::string ReferenceRows::difference(std::span<const Bf16> rows, Mode mode, std::size_t layer,
                                      const char* what) const {
  Judge judge(weights_, inputs_, mode, 1);
  judge.compare_with_earlier(rows, std::span(rows_).subspan(layer * rows.size(), rows.size()), 0,
                             static_cast<int>(layer), what);
  return judge.checks().first_mismatch;
}

}  // namespace moetail::cli
