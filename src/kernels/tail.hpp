// SPDX-License-Identifier: Apache-2.0
// What every phase of a tail knows: who this thread is, the call's slot, and the block's shared memory.
#pragma once

#include "device/barrier.hpp"
#include "device/cluster.hpp"
#include "device/pack.hpp"
#include "kernels/stall.hpp"
#include "kernels/wait.hpp"

namespace moetail::kernels {

/// This thread's place: rank of the world, cluster of the rank, K slice of the cluster.
struct Tail {
  const RankArgs& args;
  View view;
  u8* shared;             ///< the block's dynamic shared memory
  u32 shared_address;     ///< the same, as 32-bit shared address
  volatile u32* failed;   ///< nonzero once a wait of this block has ended badly
  volatile u32* touched;  ///< a word a warp that nobody reads
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

  /// Of the weights of row group `group`, 16 rows, of a stage.
  MOETAIL_DEVICE u32 weights_barrier(i32 stage, i32 group) const {
    return shared_address + kShared.barriers + static_cast<u32>(stage * kRowGroups + group) * 8;
  }
  MOETAIL_DEVICE u32 exchange_barrier() const { return weights_barrier(kGeometry.stages, 0); }
  MOETAIL_DEVICE u32 gamma_barrier() const { return weights_barrier(kGeometry.stages, 0) + 8; }
  template <class T>
  MOETAIL_DEVICE T* at(u32 offset) const {
    return reinterpret_cast<T*>(shared + offset);
  }
  MOETAIL_DEVICE Waiter waiter() const { return Waiter(args, epoch); }
};

/// Token tiles of the call.
MOETAIL_DEVICE i32 num_tiles(const Tail& tail) {
  if constexpr (kExactBatch && kMaxBatch <= kGeometry.tile) return 1;
  return (tail.batch + kGeometry.tile - 1) / kGeometry.tile;
}

/// A tail's thread. `shared`: the block's dynamic shared memory.
MOETAIL_DEVICE Tail make_tail(const Args& args, u8* shared) {
  const i32 cluster = static_cast<i32>(blockIdx.x) / kGeometry.slices;
  const RankArgs& rank = args.rank[kLoopback ? cluster / kGeometry.clusters : 0];
  const i32 thread = static_cast<i32>(threadIdx.x);
  return Tail{rank,
              View{rank},
              shared,
              device::shared_address(shared),
              reinterpret_cast<volatile u32*>(shared + kShared.failed),
              reinterpret_cast<volatile u32*>(shared + kShared.touched),
              kExactBatch ? kMaxBatch : args.batch,
              kLoopback ? cluster % kGeometry.clusters : cluster,
              static_cast<i32>(device::block_in_cluster()),
              thread,
              thread / 32,
              thread % 32};
}

/// A thread of a kernel without clusters (push, publish, take, fill): the same, with a rank's kPlainBlocks blocks as `cluster`.
/// `words`: kPlainWords words of shared memory.
inline constexpr i32 kPlainWords = 1 + kThreads / 32;
MOETAIL_DEVICE Tail make_plain(const Args& args, volatile u32* words) {
  const i32 block = static_cast<i32>(blockIdx.x);
  const RankArgs& rank = args.rank[kLoopback ? block / kPlainBlocks : 0];
  const i32 thread = static_cast<i32>(threadIdx.x);
  return Tail{rank,  View{rank}, nullptr,     0,
              words, words + 1,  args.batch,  kLoopback ? block % kPlainBlocks : block,
              0,     thread,     thread / 32, thread % 32};
}

#ifdef MOETAIL_MARKS
// An experiment's clock marks: [block][warp 0, 7, 8][mark] of SM clock and SM, at the consumer's destination. MOETAIL_MARKS is a mask.
MOETAIL_DEVICE void mark(const Tail& tail, int n) {
  if ((MOETAIL_MARKS >> n & 1) == 0) return;
  if (tail.lane != 0 || (tail.warp != 0 && tail.warp != 7 && tail.warp != 8)) return;
  const int w = tail.warp == 0 ? 0 : tail.warp - 6;
  u64* to = reinterpret_cast<u64*>(tail.args.call.destination) +
            ((static_cast<u64>(blockIdx.x) * 3 + w) * 16 + n) * 2;
  u32 sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  to[0] = static_cast<u64>(clock64());
  to[1] = sm;
}
#else
MOETAIL_DEVICE void mark(const Tail&, int) {}
#endif

/// Reads the argument once before the dependency wait. Each launch has constant memory of its own and finds none of it cached: the
/// first reads after the wait stood in line for it, 0.5 us at B = 1 (H200, 2026-11-29).
MOETAIL_DEVICE void touch_arguments(const Tail& tail) {
  constexpr int kConstantLine = 64;
  const u32* words = reinterpret_cast<const u32*>(&tail.args);
  u32 all = words[sizeof(RankArgs) / 4 - 1];
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(RankArgs)) / 4; i += kConstantLine / 4) all ^= words[i];
  // A store that nobody reads, since a load whose value goes nowhere would not be made.
  if (tail.lane == 0) tail.touched[tail.warp] = all;
}

/// What every kernel without clusters begins with, up to its first use of an input.
MOETAIL_DEVICE Tail open_plain(const Args& args, volatile u32* words) {
  const Tail tail = make_plain(args, words);
  touch_arguments(tail);
  device::wait_for_predecessor();
  // After the wait: a successor that starts early may read what this launch's own predecessors left.
  device::trigger_dependents();
  return tail;
}

/// Epoch, poison and records of this box, on their way. They are loaded beside the first rows and used after them: a warp issues
/// in order, and a use before the rows' loads cost 0.3 us at B = 1 (H200).
struct ControlWords {
  u64 epoch, poison, record_even, record_odd;
};

MOETAIL_DEVICE ControlWords load_control(const Tail& tail) {
  stall<Site::epoch>(tail.args, tail.block());
  return {device::load_relaxed_sys(tail.view.control<Control::epoch>()),
          device::load_relaxed_sys(tail.view.control<Control::poison>()),
          device::load_relaxed_sys(tail.view.control<Control::record_even>()),
          device::load_relaxed_sys(tail.view.control<Control::record_odd>())};
}

/// protocol::slot_of in 32-bit arithmetic: 2^32 is 1 modulo 3, so the halves may be taken each by itself.
MOETAIL_DEVICE i32 slot_of(u64 epoch) {
  static_assert(protocol::kSlots == 3);
  if constexpr (protocol::kRingSlots != 3) return protocol::slot_of(epoch);
  return static_cast<i32>((static_cast<u32>(epoch) % 3 + static_cast<u32>(epoch >> 32) % 3) % 3);
}

/// The launch's trigger, where it sits at `place`. A block counts as soon as the first of its warps is there, and the successor's
/// blocks enter within 0.1 us of the last block's (H200, 2026-11-29).
MOETAIL_DEVICE void trigger_at(Trigger place) {
  if (kTrigger == place) device::trigger_dependents();
}

/// Makes the control words the tail's. On a poisoned box no phase waits for anything or publishes: the launch falls through.
MOETAIL_DEVICE bool use_control(Tail& tail, const ControlWords& words) {
  tail.epoch = words.epoch;
  tail.slot = slot_of(words.epoch);
  const bool even = protocol::previous_record_word(words.epoch) == Control::record_even;
  tail.previous = protocol::unpack_record(even ? words.record_even : words.record_odd);
  if constexpr (!protocol::kRearmsByRecord)
    if (tail.previous.batch > tail.batch) tail.previous.batch = tail.batch;
  if (__builtin_expect(words.poison == 0, 1)) return true;
  *tail.failed = 1;
  if (words.poison < kRecorded) raise_fault(tail.args, tail.epoch, FaultKind::poisoned, Spot{Site::epoch}, 0);
  return false;
}

}  // namespace moetail::kernels
