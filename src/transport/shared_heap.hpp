// SPDX-License-Identifier: Apache-2.0
// The transport of ranks that are processes of one machine: every rank's box in a shared-memory segment of its own, mapped by all.
#pragma once

#include <string>
#include <vector>

#include "protocol/mailbox.hpp"
#include "transport/host.hpp"
#include "transport/rendezvous.hpp"

namespace moetail::transport {

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
