// SPDX-License-Identifier: Apache-2.0
// The host transport: the boxes of all ranks in ordinary memory of one process.
#pragma once

#include <cstddef>
#include <vector>

#include "protocol/mailbox.hpp"

namespace moetail::transport {

/// One symmetric heap a rank, `bytes` each, zeroed by the system and never moved. Throws Code::resource when memory runs out.
class HostHeap {
 public:
  HostHeap(int ranks, std::size_t bytes);
  ~HostHeap();
  HostHeap(const HostHeap&) = delete;
  HostHeap& operator=(const HostHeap&) = delete;

  /// What rank `rank` sees: everyone's heap at its plain address, no multicast.
  protocol::BoxView view(int rank, const protocol::Layout& layout) const;

 private:
  std::size_t bytes_;
  std::vector<void*> heaps_;
};

}  // namespace moetail::transport
