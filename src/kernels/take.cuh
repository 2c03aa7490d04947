// SPDX-License-Identifier: Apache-2.0
// take: copies the output rows out of the box and re-arms them behind itself; on a faulted box it writes NaN.
#include "kernels/deliver.hpp"

using namespace moetail::kernels;
namespace device = moetail::device;

extern "C" __global__ void __launch_bounds__(kThreads) moetail_take(const __grid_constant__ Args args) {
  __shared__ __align__(16) moetail::protocol::u8 words[block_words::kBytes];
  Tail tail = open_plain(args, device::shared_address(words));
  using namespace moetail::protocol;
  const auto lines = moetail::kernels::part_of(static_cast<u32>(tail.batch * kHiddenLines),
                                               static_cast<u32>(tail.cluster), kPlainBlocks);
  bool alive = use_control(tail, load_control(tail));
  // The tail has advanced the epoch: its call is the one before.
  const moetail::protocol::u64 served = tail.epoch() - 1;
  __syncthreads();
  if (tail.thread == 0) device::store_shared(tail.words() + block_words::kControl, served);
  __syncthreads();
  stall<Site::consume>(tail.args, tail.block());
  for (u32 i = lines.begin + threadIdx.x; i < lines.end; i += kThreads) {
    const int token = static_cast<int>(i / kHiddenLines), column = static_cast<int>(i % kHiddenLines);
    const int owner = column / kShardLines;
    const u64 where = place<Region::out>(0, 0, token) + static_cast<u64>(column) * kLineBytes;
    const Line* from = tail.view.at<Line>(tail.args.rank, where);
    Line line;
    Waiter waiter = tail.waiter();
    Spot spot{Site::consume, owner, token};
    alive = alive && wait_until(waiter, spot, [&](Spot&) {
              line = device::load_relaxed_sys(from);
              return has_empty(line) ? 1 : 0;
            });
    if (!alive) line = line_of(kCleanedWord);
    device::store_weak(reinterpret_cast<Line*>(tail.args.call.destination) + i, line);
    if (!alive) continue;
    stall<Site::consume_rearm>(tail.args, tail.block());
    device::u8* box = owner == tail.args.rank ? tail.view.own : tail.args.rearm_others;
    device::store_weak(reinterpret_cast<Line*>(box + where), line_of(kEmptyWord));
  }
}
