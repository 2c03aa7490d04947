// SPDX-License-Identifier: Apache-2.0
// A rank's box for a kernel that was compiled for no shape: protocol::BoxView out of the launch's argument, and its waits.
#pragma once

#include "device/fault.hpp"
#include "protocol/targets.hpp"

namespace moetail::device {

using protocol::BoxView;
using protocol::Control;
using protocol::LaunchLink;
using protocol::Region;
using protocol::Site;

/// Threads that share a job between them: thread `index` of `count`. All of the group make the same calls.
struct Threads {
  int index = 0;
  int count = 1;

  static MOETAIL_DEVICE Threads of_block() {
    const unsigned row = blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    return {static_cast<int>(threadIdx.x + row), static_cast<int>(blockDim.x * blockDim.y * blockDim.z)};
  }
  static MOETAIL_DEVICE Threads of_warp() { return {of_block().index % 32, 32}; }
  static MOETAIL_DEVICE Threads of_grid() {
    const Threads block = of_block();
    const unsigned index = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    return {static_cast<int>(index) * block.count + block.index,
            static_cast<int>(gridDim.x * gridDim.y * gridDim.z) * block.count};
  }
};

struct LinkRank;
MOETAIL_COLD void raise_link_fault(LinkRank me, FaultKind kind, Spot spot, u64 elapsed_ns);
MOETAIL_COLD WaitVerdict look_around_link(LinkRank me, Spot spot, u64 elapsed_ns);

/// device/fault.hpp's Rank.
struct LinkRank {
  const BoxView& box;
  const LaunchLink& link;
  u64 served_epoch;  ///< of the call that waits

  MOETAIL_DEVICE i32 rank() const { return box.rank; }
  MOETAIL_DEVICE i32 ranks() const { return box.ranks(); }
  MOETAIL_DEVICE i32 layer() const { return link.layer; }
  MOETAIL_DEVICE u64 epoch() const { return served_epoch; }
  MOETAIL_DEVICE FaultCell* fault_cell() const { return link.fault; }
  MOETAIL_DEVICE u64* poison_of(i32 rank) const { return box.control_of(rank, Control::poison); }
  MOETAIL_DEVICE u64 deadline_ns(bool is_first_call) const {
    return is_first_call ? link.first_deadline_ns : link.deadline_ns;
  }
  MOETAIL_DEVICE void raise_fault(FaultKind kind, const Spot& spot, u64 elapsed_ns) const {
    raise_link_fault(*this, kind, spot, elapsed_ns);
  }
  MOETAIL_DEVICE WaitVerdict look_around(const Spot& spot, u64 elapsed_ns) const {
    return look_around_link(*this, spot, elapsed_ns);
  }
};

MOETAIL_COLD void raise_link_fault(LinkRank me, FaultKind kind, Spot spot, u64 elapsed_ns) {
  raise_fault_of(me, kind, spot, elapsed_ns);
}

MOETAIL_COLD WaitVerdict look_around_link(LinkRank me, Spot spot, u64 elapsed_ns) {
  return look_around_of(me, spot, elapsed_ns);
}

/// Puts a word or a line of something that every rank gets whole at `at_bytes` of every box. Polled by: the latent polls.
template <class Piece>
MOETAIL_DEVICE void put_everywhere(const BoxView& box, const LaunchLink& link, u64 at_bytes,
                                   const Piece& piece) {
  if (box.multicast != nullptr) {
    store_multicast_relaxed_sys(reinterpret_cast<Piece*>(box.multicast + at_bytes), piece);
    return;
  }
  const i32 copies = link.puts_own ? 1 : box.ranks();
  for (i32 i = 0; i < copies; ++i) {
    // Each rank begins with itself, so that the ranks do not all write to one peer at once.
    const i32 peer = (box.rank + i) % box.ranks();
    store_relaxed_sys(reinterpret_cast<Piece*>(box.peer[peer] + at_bytes), piece);
  }
}

/// The epoch of the call that is under way: what a launch reads once the consumer of the previous call is complete.
MOETAIL_DEVICE u64 load_epoch(const BoxView& box) {
  return load_relaxed_sys(box.control(Control::epoch));
}

}  // namespace moetail::device
