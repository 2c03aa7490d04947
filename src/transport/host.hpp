// SPDX-License-Identifier: Apache-2.0
// The host transport: the boxes of all ranks in ordinary memory of one process.
#pragma once

#include <cstddef>
#include <vector>

#include "protocol/mailbox.hpp"

namespace moetail::transport {

/// Whether the ranks read one copy of what all of them get, or each a copy of its own.
enum class Copies { one_for_all, one_a_rank };

/// One symmetric heap a rank, `bytes` each, zeroed by the system and never moved. Throws Code::resource when memory runs out.
class HostHeap {
 public:
  HostHeap(int ranks, std::size_t bytes, Copies copies);
  ~HostHeap();
  HostHeap(const HostHeap&) = delete;
  HostHeap& operator=(const HostHeap&) = delete;

  /// What rank `rank` sees: everyone's heap at its plain address, and the common copy.
  protocol::BoxView view(int rank, const protocol::Layout& layout) const;

 private:
  std::size_t bytes_;
  std::vector<void*> heaps_;  // a rank each, and one more for the common copy
  bool has_common_;
};

}  // namespace moetail::transport
