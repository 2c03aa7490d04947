// SPDX-License-Identifier: Apache-2.0
// publish: finalizes this rank's rows and publishes the partial, as the experts' epilogue does in publish and twoshot mode; where it
// is compiled to, it pushes too.
#include "kernels/deliver.hpp"

using namespace moetail::kernels;
namespace device = moetail::device;

extern "C" __global__ void __launch_bounds__(kThreads) moetail_publish(const __grid_constant__ Args args) {
  __shared__ __align__(16) moetail::protocol::u8 words[block_words::kBytes];
  Tail tail = open_plain(args, device::shared_address(words));
  const auto part = part_of(static_cast<device::u32>(tail.batch * kLatentLines),
                            static_cast<device::u32>(tail.cluster), kPlainBlocks);
  if (part.begin == part.end) return;
  constexpr device::i32 kMost = (kMaxBatch * kLatentLines + kPlainBlocks - 1) / kPlainBlocks;
  const bool alive = publish_share<kThreads / 32, kMost>(tail, {0, kLatentLines, part});
  if constexpr (kPushes) {
    if (alive && tail.cluster == 0 && tail.warp == 0) publish_header(tail);
    if (alive && tail.thread < kErrandThreads) push_shards(tail, tail.thread, tail.cluster, kPlainBlocks);
  }
}
