// SPDX-License-Identifier: Apache-2.0
#include "transport/shared_heap.hpp"

#include <optional>
#include <utility>

namespace moetail::transport {

using protocol::Layout;
using protocol::Region;
using Range = SharedSegment::Range;

std::vector<Range> used_ranges(const Layout& layout, bool has_common, bool is_the_common_one) {
  protocol::u8 anywhere = 0;
  protocol::BoxView view;
  view.common = has_common ? &anywhere : nullptr;
  std::vector<Range> ranges;
  for (int i = 0; i < protocol::kRegions; ++i) {
    if (view.is_common(static_cast<Region>(i)) != is_the_common_one) continue;
    const std::size_t begin = layout.offset[i], end = begin + layout.region_bytes[i];
    if (!ranges.empty() && ranges.back().end + protocol::kRegionAlignment > begin)
      ranges.back().end = end;
    else if (end > begin)
      ranges.push_back({begin, end});
  }
  return ranges;
}

SharedHeap::SharedHeap(Rendezvous& meeting, const std::string& step, const Layout& layout, Copies copies) {
  const bool has_common = copies == Copies::one_for_all;
  const bool makes_common = has_common && meeting.rank() == 0;
  const std::size_t bytes = layout.total_bytes;
  std::optional<SharedSegment> own, common;
  Outcome outcome;
  std::string names;
  try {
    own.emplace(SharedSegment::create(bytes, used_ranges(layout, has_common, false)));
    names = own->name();
    if (makes_common) {
      common.emplace(SharedSegment::create(bytes, used_ranges(layout, has_common, true)));
      names += '\n' + common->name();
    }
  } catch (...) {
    outcome = current_failure();
  }
  const std::vector<std::string> all = meeting.gather(step + ", memory", names, outcome);
  meeting.vote_on(step + ", mapping", [&] {
    view_.layout = layout;
    view_.rank = meeting.rank();
    const auto add = [&](SharedSegment segment) {
      segments_.push_back(std::move(segment));
      return static_cast<protocol::u8*>(segments_.back().data());
    };
    for (int rank = 0; rank < meeting.ranks(); ++rank) {
      const std::string& theirs = all[static_cast<std::size_t>(rank)];
      const std::size_t line = theirs.find('\n');
      view_.peer[rank] =
          add(rank == meeting.rank() ? std::move(*own) : SharedSegment::open(theirs.substr(0, line), bytes));
      if (has_common && rank == 0)
        view_.common = add(common ? std::move(*common) : SharedSegment::open(theirs.substr(line + 1), bytes));
    }
  });
  for (SharedSegment& segment : segments_) segment.remove_name();
}

}  // namespace moetail::transport
