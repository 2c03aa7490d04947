// SPDX-License-Identifier: Apache-2.0
// What every phase of a tail knows: who this thread is, the call's slot, and the block's shared memory.
#pragma once

#include "device/barrier.hpp"
#include "device/cluster.hpp"
#include "device/pack.hpp"
#include "kernels/wait.hpp"

namespace moetail::kernels {

/// This thread's place: rank of the world, cluster of the rank, K slice of the cluster.
struct Tail {
  const RankArgs& args;
  View view;
  u8* shared;          ///< the block's dynamic shared memory
  u32 shared_address;  ///< the same, as 32-bit shared address
  i32 batch;
  i32 cluster;  ///< 0 .. clusters of a rank - 1
  i32 slice;    ///< 0 .. slices - 1, the block's rank in its cluster
  i32 thread, warp, lane;
  u64 epoch = 0;  ///< known after read_control
  i32 slot = 0;
  protocol::Record previous{};  ///< what the previous call dirtied

  MOETAIL_DEVICE i32 block() const { return cluster * kGeometry.slices + slice; }
  MOETAIL_DEVICE i32 slice_begin() const { return slice * kCut.slice_lines; }
  /// Lines of this K slice: the last ones may be short or empty.
  MOETAIL_DEVICE i32 slice_lines() const {
    if constexpr (kSlicesAreEqual) return kCut.slice_lines;
    const i32 left = kLatentLines - slice_begin();
    return left < 0 ? 0 : left < kCut.slice_lines ? left : kCut.slice_lines;
  }
  /// Row blocks are dealt out to the clusters in turns.
  MOETAIL_DEVICE i32 num_row_blocks() const {
    if constexpr (kCut.row_blocks == kGeometry.clusters) return 1;
    return (kCut.row_blocks - cluster + kGeometry.clusters - 1) / kGeometry.clusters;
  }

  MOETAIL_DEVICE u32 stage_barrier(i32 stage) const { return shared_address + kShared.barriers + stage * 8; }
  MOETAIL_DEVICE u32 exchange_barrier() const { return stage_barrier(kGeometry.stages); }
  MOETAIL_DEVICE u32 gamma_barrier() const { return stage_barrier(kGeometry.stages + 1); }
  template <class T>
  MOETAIL_DEVICE T* at(u32 offset) const {
    return reinterpret_cast<T*>(shared + offset);
  }
  MOETAIL_DEVICE volatile u32* failed() const { return at<volatile u32>(kShared.failed); }
  MOETAIL_DEVICE Waiter waiter() const { return Waiter(args, epoch); }
};

MOETAIL_DEVICE Tail make_tail(const Args& args, u8* shared) {
  const i32 cluster = static_cast<i32>(blockIdx.x) / kGeometry.slices;
  const i32 local_rank = kLoopback ? cluster / kGeometry.clusters : 0;
  const RankArgs& rank = args.rank[local_rank];
  const i32 thread = static_cast<i32>(threadIdx.x);
  return Tail{rank,
              View{rank},
              shared,
              device::shared_address(shared),
              kExactBatch ? kMaxBatch : args.batch,
              kLoopback ? cluster % kGeometry.clusters : cluster,
              static_cast<i32>(device::block_in_cluster()),
              thread,
              thread / 32,
              thread % 32};
}

#ifdef MOETAIL_MARKS
// An experiment's clock marks: [block][warp 0, 7, 8][mark] of SM clock and global time, at the consumer's destination.
MOETAIL_DEVICE void mark(const Tail& tail, int n) {
  if (tail.lane != 0 || (tail.warp != 0 && tail.warp != 7 && tail.warp != 8)) return;
  const int w = tail.warp == 0 ? 0 : tail.warp - 6;
  u64* to = reinterpret_cast<u64*>(tail.args.call.destination) + ((static_cast<u64>(blockIdx.x) * 3 + w) * 16 + n) * 2;
  to[0] = static_cast<u64>(clock64());
  to[1] = device::global_time_ns();
}
#else
MOETAIL_DEVICE void mark(const Tail&, int) {}
#endif

/// Epoch, poison and records of this box, on their way. They are loaded beside the first rows and used after them: a warp issues
/// in order, and a use before the rows' loads cost 0.3 us at B = 1 (H200).
struct ControlWords {
  u64 epoch, poison, record_even, record_odd;
};

MOETAIL_DEVICE ControlWords load_control(const Tail& tail) {
  return {device::load_relaxed_sys(tail.view.control<Control::epoch>()),
          device::load_relaxed_sys(tail.view.control<Control::poison>()),
          device::load_relaxed_sys(tail.view.control<Control::record_even>()),
          device::load_relaxed_sys(tail.view.control<Control::record_odd>())};
}

/// Makes the control words the tail's. On a poisoned box no phase waits for anything or publishes: the launch falls through.
MOETAIL_DEVICE bool use_control(Tail& tail, const ControlWords& words) {
  tail.epoch = words.epoch;
  tail.slot = protocol::slot_of(words.epoch);
  const bool even = protocol::previous_record_word(words.epoch) == Control::record_even;
  tail.previous = protocol::unpack_record(even ? words.record_even : words.record_odd);
  if (words.poison == 0) return true;
  *tail.failed() = 1;
  if (words.poison < kRecorded) raise_fault(tail.args, tail.epoch, FaultKind::poisoned, Spot{Site::epoch}, 0);
  return false;
}

}  // namespace moetail::kernels
