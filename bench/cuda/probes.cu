// SPDX-License-Identifier: Apache-2.0
// The machine's own ceilings, one kernel each: what no kernel on this GPU does faster. Compiled at run time as they stand here.
#include "device/barrier.hpp"
#include "device/cluster.hpp"
#include "device/global.hpp"
#include "device/shared.hpp"

namespace device = moetail::device;
using moetail::protocol::Line;
using moetail::protocol::u32;
using moetail::protocol::u64;
using moetail::protocol::u8;

// Enough that a thread's loads are always on their way: bandwidth is what is measured, not latency.
constexpr int kLinesInFlight = 8;
// Polls before a partner that does not answer is given up: some seconds.
constexpr u32 kMostPolls = 1u << 22;
// Words that two blocks poll lie in sectors of their own.
constexpr u32 kWordDistance = 64;

// `lines`: a multiple of kLinesInFlight times the launch's threads, so that no load has a condition.
extern "C" __global__ void __launch_bounds__(512) moetail_probe_copy(const Line* from, Line* to, u64 lines) {
  const u64 stride = static_cast<u64>(gridDim.x) * blockDim.x;
  for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < lines;
       i += kLinesInFlight * stride) {
    Line line[kLinesInFlight];
#pragma unroll
    for (int j = 0; j < kLinesInFlight; ++j)
      line[j] = device::load_weak(from + i + static_cast<u64>(j) * stride);
#pragma unroll
    for (int j = 0; j < kLinesInFlight; ++j)
      device::store_weak(to + i + static_cast<u64>(j) * stride, line[j]);
  }
}

// `never`: written where all words of a thread are one and the same odd value, which the caller's data are not: without a use nobody
// waits for the last loads.
extern "C" __global__ void __launch_bounds__(512)
    moetail_probe_read(const Line* from, u32* never, u64 lines) {
  const u64 stride = static_cast<u64>(gridDim.x) * blockDim.x;
  u32 all = 0;
  for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < lines;
       i += kLinesInFlight * stride) {
    Line line[kLinesInFlight];
#pragma unroll
    for (int j = 0; j < kLinesInFlight; ++j)
      line[j] = device::load_weak(from + i + static_cast<u64>(j) * stride);
#pragma unroll
    for (int j = 0; j < kLinesInFlight; ++j)
      all |= line[j].word[0] | line[j].word[1] | line[j].word[2] | line[j].word[3];
  }
  if (all == 0x5EEDBEADu) device::store_weak(never, all);
}

// The fastest chain there is: it lets its successor start at once, and waits for its predecessor only to keep the order.
extern "C" __global__ void __launch_bounds__(288) moetail_probe_empty() {
  device::trigger_dependents();
  device::wait_for_predecessor();
}

// Two blocks on two SMs answer each other `rounds` times: a round is two publications seen by a poll. The words start as zero.
extern "C" __global__ void __launch_bounds__(32) moetail_probe_publish(u32* words, u32 rounds) {
  if (threadIdx.x != 0) return;
  const u32* mine = words + blockIdx.x * kWordDistance;
  u32* theirs = words + (1 - blockIdx.x) * kWordDistance;
  for (u32 round = 1; round <= rounds; ++round) {
    if (blockIdx.x == 0) device::store_relaxed_sys(theirs, round);
    u32 polls = 0;
    while (device::load_relaxed_sys(mine) != round)
      if (++polls == kMostPolls) return;  // the caller sees it by the last word
    if (blockIdx.x == 1) device::store_relaxed_sys(theirs, round);
  }
}

// One cluster. Every block sends every block 8 bytes and waits for as many from each, `rounds` times: what a tail does when its K
// slices meet. Two barriers in turn, since a block may be one round ahead of another, never two.
extern "C" __global__ void __launch_bounds__(32) moetail_probe_exchange(u32 rounds, u32* done) {
  extern __shared__ __align__(128) u8 shared[];
  const u32 base = device::shared_address(shared), blocks = gridDim.x, lane = threadIdx.x;
  constexpr u32 kBarriers = 2, kSlotsAt = 16, kSlotBytes = 8, kMostBlocks = 16;
  if (lane < kBarriers) device::init_barrier(base + lane * 8);
  device::fence_barrier_init();
  __syncthreads();
  device::arrive_cluster_release();
  device::wait_cluster_acquire();
  const u32 mine = device::block_in_cluster();
  for (u32 round = 0; round < rounds; ++round) {
    const u32 turn = round % 2, barrier = base + turn * 8;
    if (lane == 0) device::expect_bytes(barrier, blocks * kSlotBytes);
    if (lane < blocks)
      device::store_async(
          device::address_in_block(base + kSlotsAt + (turn * kMostBlocks + mine) * kSlotBytes, lane),
          device::address_in_block(barrier, lane), 1.0f, 1.0f);
    device::wait_barrier(barrier, round / 2 % 2);
  }
  if (lane == 0) device::store_weak(done + mine, rounds);
}
