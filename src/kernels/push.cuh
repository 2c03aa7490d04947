// SPDX-License-Identifier: Apache-2.0
// push: the shared partial's shards and the call's header, in publish and twoshot mode, from the main or a side stream.
#include "kernels/deliver.hpp"

using namespace moetail::kernels;
namespace device = moetail::device;

extern "C" __global__ void __launch_bounds__(kThreads) moetail_push(const __grid_constant__ Args args) {
  __shared__ __align__(16) moetail::protocol::u8 words[block_words::kBytes];
  Tail tail = open_plain(args, device::shared_address(words));
  const auto lines = shard_part(tail, tail.cluster, kPlainBlocks);
  // A block with nothing to store must not read the epoch: nothing would tell the tail that it has.
  if (lines.begin == lines.end) return;
  if (!use_control(tail, load_control(tail))) return;
  if (tail.cluster == 0 && tail.warp == 0) publish_header(tail);
  if (tail.thread < kErrandThreads) push_shards(tail, tail.thread, tail.cluster, kPlainBlocks);
}
