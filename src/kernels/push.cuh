// SPDX-License-Identifier: Apache-2.0
// push: the shared partial's shards and the call's header, in publish and twoshot mode, from the main or a side stream.
#include "kernels/deliver.hpp"

using namespace moetail::kernels;
namespace device = moetail::device;

extern "C" __global__ void __launch_bounds__(kThreads) moetail_push(const __grid_constant__ Args args) {
  __shared__ moetail::protocol::u32 words[kPlainWords];
  Tail tail = open_plain(args, words);
  const auto lines = part_of(static_cast<device::u32>(tail.batch * kHiddenLines),
                             static_cast<device::u32>(tail.cluster), kPlainBlocks);
  // A block with nothing to store must not read the epoch: nothing would tell the tail that it has.
  if (lines.begin == lines.end && tail.cluster != 0) return;
  if (!use_control(tail, load_control(tail))) return;
  if (tail.cluster == 0 && tail.warp == 0) publish_header(tail);
  if (tail.thread < kErrandThreads) push_shards(tail, tail.thread, tail.cluster, kPlainBlocks);
}
