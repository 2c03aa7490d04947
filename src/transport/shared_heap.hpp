// SPDX-License-Identifier: Apache-2.0
// The transport of ranks that are processes of one machine: every rank's box in a shared-memory segment of its own, mapped by all.
#pragma once

#include <string>
#include <vector>

#include "protocol/mailbox.hpp"
#include "transport/host.hpp"
#include "transport/rendezvous.hpp"

namespace moetail::transport {

/// What is touched of a rank's heap or, with `is_the_common_one`, of the common copy, which has the layout of all others. With a common
/// copy its regions are holes of the ranks' heaps, and all other regions are holes of it.
std::vector<SharedSegment::Range> used_ranges(const protocol::Layout& layout, bool has_common,
                                              bool is_the_common_one);

/// All ranks' heaps as one rank sees them.
class SharedHeap {
 public:
  /// Collective, and a vote: where any rank cannot make or map a segment, all throw its reason (Code::resource, Code::fault). Nothing
  /// keeps a name. `step`: what the rounds are called. No heap is armed, and nobody may store into a peer's before all have said
  /// that theirs is.
  SharedHeap(Rendezvous& meeting, const std::string& step, const protocol::Layout& layout, Copies copies);

  /// Everyone's heap at its address in this process, and the common copy.
  const protocol::BoxView& view() const { return view_; }

 private:
  std::vector<SharedSegment> segments_;
  protocol::BoxView view_;
};

}  // namespace moetail::transport
