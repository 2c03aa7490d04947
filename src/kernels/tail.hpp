// SPDX-License-Identifier: Apache-2.0
// What every phase of a tail knows: who this thread is, the call's slot, and the block's shared memory.
#pragma once

#include "device/barrier.hpp"
#include "device/cluster.hpp"
#include "device/pack.hpp"
#include "device/shared.hpp"
#include "kernels/ablation.hpp"
#include "kernels/stall.hpp"
#include "kernels/trace.hpp"
#include "kernels/wait.hpp"

namespace moetail::kernels {

/// This thread's place: rank of the world, cluster of the rank, K slice of the cluster.
struct Tail {
  const RankArgs& args;
  View view;
  u32 shared;  ///< address of the block's shared memory, laid out as kShared says
  i32 batch;
  i32 cluster;  ///< 0 .. clusters of a rank - 1
  i32 slice;    ///< 0 .. slices - 1, the block's rank in its cluster
  i32 thread, warp, lane;
  i32 slot = 0;                 ///< known after use_control
  protocol::Record previous{};  ///< what the previous call dirtied
  u32 arrived = 0;              ///< the control thread's: blocks of the rank that had arrived before this one
  mutable Marks marks{};        ///< whoever passes a phase's end sets one

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
    return shared + kShared.barriers + static_cast<u32>(stage * kRowGroups + group) * 8;
  }
  MOETAIL_DEVICE u32 exchange_barrier(i32 exchange) const {
    return weights_barrier(kGeometry.stages, 0) + static_cast<u32>(exchange) * 8;
  }
  MOETAIL_DEVICE u32 gamma_barrier() const { return exchange_barrier(kGeometry.exchanges); }
  /// Of what a team's compute warps have made of its operand.
  MOETAIL_DEVICE u32 team_barrier(i32 team) const { return gamma_barrier() + static_cast<u32>(1 + team) * 8; }
  /// Of the shared partials' sums.
  MOETAIL_DEVICE u32 sums_barrier() const { return team_barrier(kMostTeams); }
  MOETAIL_DEVICE u32 words() const { return shared + kShared.words; }
  MOETAIL_DEVICE u32 control_barrier() const { return words() + block_words::kBarrier; }
  MOETAIL_DEVICE bool has_failed() const { return device::load_shared(words() + block_words::kFailed) != 0; }
  /// A wait of this block has ended badly.
  MOETAIL_DEVICE void set_failed() const { device::store_shared(words() + block_words::kFailed, 1u); }
  /// After use_control. It stays in shared memory: what needs it is rare, or one thread's.
  MOETAIL_DEVICE u64 epoch() const { return device::load_shared_pair(words() + block_words::kControl); }
  MOETAIL_DEVICE Waiter waiter() const { return Waiter({args, words() + block_words::kControl}); }
};

/// Token tiles of the call.
MOETAIL_DEVICE i32 num_tiles(const Tail& tail) {
  if constexpr (kMaxBatch <= kGeometry.tile) return 1;
  return (tail.batch + kGeometry.tile - 1) / kGeometry.tile;
}

/// A tail's thread. `shared`: address of the block's dynamic shared memory.
MOETAIL_DEVICE Tail make_tail(const Args& args, u32 shared) {
  const i32 cluster = static_cast<i32>(blockIdx.x) / kGeometry.slices;
  const RankArgs& rank = args.rank[kLoopback ? cluster / kGeometry.clusters : 0];
  const i32 thread = static_cast<i32>(threadIdx.x);
  return Tail{rank,
              View{rank},
              shared,
              kExactBatch ? kMaxBatch : args.batch,
              kLoopback ? cluster % kGeometry.clusters : cluster,
              static_cast<i32>(device::block_in_cluster()),
              thread,
              thread / 32,
              thread % 32};
}

/// A thread of a kernel without clusters (push, publish, take, fill): the same, with a rank's kPlainBlocks blocks as `cluster`.
/// `words`: address of the block's block_words, the only part of kShared that these kernels have.
MOETAIL_DEVICE Tail make_plain(const Args& args, u32 words) {
  const i32 block = static_cast<i32>(blockIdx.x);
  const RankArgs& rank = args.rank[kLoopback ? block / kPlainBlocks : 0];
  const i32 thread = static_cast<i32>(threadIdx.x);
  return Tail{rank, View{rank}, words - kShared.words, args.batch, kLoopback ? block % kPlainBlocks : block,
              0,    thread,     thread / 32,           thread % 32};
}

/// This warp passes the end of a phase.
template <Mark kMark>
MOETAIL_DEVICE void mark(const Tail& tail) {
  tail.marks.template set<kMark>();
}

/// The last that a tail's thread does: hands its warp's marks to the host where they are recorded.
MOETAIL_DEVICE void close_trace(const Tail& tail) {
  mark<Mark::put>(tail);
  if (kTraces && tail.lane == 0)
    tail.marks.store(reinterpret_cast<TraceSlot*>(tail.args.call.destination), tail.epoch() + 1,
                     tail.args.call.layer, tail.block(), tail.warp);
}

/// Reads the argument once before the dependency wait. Each launch has constant memory of its own and finds none of it cached: the
/// first reads after the wait stood in line for it, 0.5 us at B = 1 (H200, 2026-11-29).
MOETAIL_DEVICE void touch_arguments(const Tail& tail) {
  constexpr int kConstantLine = 64;
  const u32* words = reinterpret_cast<const u32*>(&tail.args);
  u32 all = words[sizeof(RankArgs) / 4 - 1];
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(RankArgs)) / 4; i += kConstantLine / 4) all ^= words[i];
  // A store that nobody reads, since a load whose value goes nowhere would not be made.
  if (tail.lane == 0)
    device::store_shared(tail.words() + block_words::kTouched + static_cast<u32>(tail.warp) * 4, all);
}

/// What every kernel without clusters begins with, up to its first use of an input.
MOETAIL_DEVICE Tail open_plain(const Args& args, u32 words) {
  const Tail tail = make_plain(args, words);
  if (tail.thread == 0) device::init_barrier(tail.control_barrier());
  __syncthreads();
  touch_arguments(tail);
  device::wait_for_predecessor();
  // After the wait: a successor that starts early may read what this launch's own predecessors left.
  device::trigger_dependents();
  return tail;
}

/// The thread of a block that loads the control words. One: when every warp of 112 blocks asked for the same four lines, the last one had
/// its answer 1600 clocks after the dependency wait instead of 500 (H200, 2026-11-29). One of the side warp, which has the fewest rows to load.
inline constexpr i32 kControlThread = kSideWarp * 32;

/// Epoch, poison and records of this box on their way, in the one thread that loads them. They are used after the first rows' loads: a
/// warp issues in order, and a use before them cost 0.3 us at B = 1 (H200).
struct ControlWords {
  u64 epoch, poison, record_even, record_odd;
};

MOETAIL_DEVICE ControlWords load_control(const Tail& tail) {
  stall<Site::epoch>(tail.args, tail.block());
  if (kTimes<Stage::epoch> == 0 || tail.thread != kControlThread) return {};
  static_assert(kControlOffset<Control::poison> == kControlOffset<Control::epoch> + 8 &&
                kControlOffset<Control::record_odd> == kControlOffset<Control::record_even> + 8);
  const device::Pair first = device::load_pair_relaxed_sys(tail.view.control<Control::epoch>());
  const device::Pair second = device::load_pair_relaxed_sys(tail.view.control<Control::record_even>());
  return {first.first, first.second, second.first, second.second};
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

/// What the thread that loaded the control words makes of them, for the others: two lines in shared memory.
MOETAIL_DEVICE void hand_on_control(const Tail& tail, const ControlWords& words) {
  const bool even = protocol::previous_record_word(words.epoch) == Control::record_even;
  const u64 record = even ? words.record_even : words.record_odd;
  const u32 is_alive = words.poison == 0 ? 1 : 0;
  device::store_shared(tail.words() + block_words::kControl,
                       Line{{static_cast<u32>(words.epoch), static_cast<u32>(words.epoch >> 32),
                             static_cast<u32>(slot_of(words.epoch)), is_alive}});
  device::store_shared(tail.words() + block_words::kControl + 16,
                       Line{{static_cast<u32>(record), static_cast<u32>(record >> 32), 0, 0}});
  if (is_alive == 0) tail.set_failed();
  device::arrive_barrier(tail.control_barrier());
  if (__builtin_expect(is_alive != 0, 1) || words.poison >= kRecorded) return;
  raise_fault(tail.args, words.epoch, FaultKind::poisoned, Spot{Site::epoch}, 0);
}

/// Makes the control words the tail's. On a poisoned box no phase waits for anything or publishes: the launch falls through.
MOETAIL_DEVICE bool use_control(Tail& tail, const ControlWords& loaded) {
  if constexpr (kTimes<Stage::epoch> == 0) {
    tail.previous = {tail.batch, protocol::dirtied_regions(kMode, kShares, false, false)};
    return true;
  }
  if (tail.thread == kControlThread) hand_on_control(tail, loaded);
  device::wait_barrier(tail.control_barrier(), 0);
  const Line first = device::load_shared_line(tail.words() + block_words::kControl);
  const Line second = device::load_shared_line(tail.words() + block_words::kControl + 16);
  tail.slot = static_cast<i32>(first.word[2]);
  tail.previous = protocol::unpack_record(static_cast<u64>(second.word[1]) << 32 | second.word[0]);
  if constexpr (!protocol::kRearmsByRecord)
    if (tail.previous.batch > tail.batch) tail.previous.batch = tail.batch;
  return first.word[3] != 0;
}

}  // namespace moetail::kernels
