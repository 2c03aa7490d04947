// SPDX-License-Identifier: Apache-2.0
// front and front_poll: one launch from expert rows to the output row in every rank's box.
#include "kernels/finish.hpp"

using namespace moetail::kernels;
namespace device = moetail::device;

extern "C" __global__ void __launch_bounds__(kThreads, kMinBlocks) moetail_front(const __grid_constant__ Args args) {
  extern __shared__ __align__(128) moetail::protocol::u8 shared[];
  Tail tail = make_tail(args, shared);
  const int num_tiles = kExactBatch && kMaxBatch <= kGeometry.tile ? 1 : (tail.batch + kGeometry.tile - 1) / kGeometry.tile;
  const int num_iterations = num_tiles * tail.num_row_blocks();

  mark(tail, 0);
  open_block(tail, num_iterations);
  mark(tail, 1);
  if constexpr (kTrigger == Trigger::at_entry) device::trigger_dependents();
  if constexpr (!kPollsSlots) device::wait_for_predecessor();

  mark(tail, 2);
  bool alive = publish_latents(tail);
  if constexpr (kPollsSlots && !kPollsShared) device::wait_for_predecessor();
  const int errand = errand_thread(tail);
  mark(tail, 3);
  if (alive) {
    if (tail.block() == 0 && tail.warp == kComputeWarps) publish_header(tail);
    alive = push_shards(tail, errand, tail.block(), kBlocks);
    mark(tail, 4);
    rearm_previous(tail, errand, tail.block(), kBlocks);
    if (tail.block() == 0 && tail.warp == kComputeWarps) alive = check_header(tail) && alive;
  }
  mark(tail, 5);
  device::wait_barrier(tail.gamma_barrier(), 0);
  for (int index = 0; index < num_iterations; ++index) {
    const Iteration it = iteration_of(tail, index);
    if (alive && tail.warp == kComputeWarps) alive = reduce_shared(tail, it.tile, it.row_block);
    if (alive && tail.warp < kComputeWarps && is_first_of_tile(tail, it)) alive = reduce_latents(tail, it.tile);
    mark(tail, 6);
    if (!alive) *tail.failed() = 1;
    if (kTrigger == Trigger::after_poll && index + 1 == num_iterations) device::trigger_dependents();
    if constexpr (kPollsSlots && kPollsShared) device::wait_for_predecessor();
    project_and_publish(tail, index, num_iterations);
    mark(tail, 12);
  }
}
