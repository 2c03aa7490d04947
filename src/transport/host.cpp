// SPDX-License-Identifier: Apache-2.0
#include "transport/host.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/error.hpp"

namespace moetail::transport {

HostHeap::HostHeap(int ranks, std::size_t bytes, Copies copies)
    : bytes_(bytes), has_common_(copies == Copies::one_for_all) {
  // Pages that nobody touches cost nothing, so the common heap has the layout of all others.
  const int heaps = ranks + (has_common_ ? 1 : 0);
  for (int heap_idx = 0; heap_idx < heaps; ++heap_idx) {
    void* heap =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (heap == MAP_FAILED) {
      const int error = errno;
      for (void* made : heaps_) munmap(made, bytes_);
      base::fail(Code::resource, "mailboxes, heap {} of {}: {} bytes of memory: {}", heap_idx + 1, heaps,
                 bytes, std::strerror(error));
    }
    // Mailboxes are written and polled in long runs; huge pages keep them out of the TLB's way. Best effort.
    madvise(heap, bytes, MADV_HUGEPAGE);
    heaps_.push_back(heap);
  }
}

HostHeap::~HostHeap() {
  for (void* heap : heaps_) munmap(heap, bytes_);
}

protocol::BoxView HostHeap::view(int rank, const protocol::Layout& layout) const {
  protocol::BoxView view;
  view.layout = layout;
  view.rank = rank;
  if (has_common_) view.common = static_cast<protocol::u8*>(heaps_.back());
  const std::size_t ranks = heaps_.size() - (has_common_ ? 1 : 0);
  for (std::size_t peer = 0; peer < ranks; ++peer) view.peer[peer] = static_cast<protocol::u8*>(heaps_[peer]);
  return view;
}

}  // namespace moetail::transport
