// SPDX-License-Identifier: Apache-2.0
// front and front_poll: one launch from expert rows to the output row in every rank's box.
#include "kernels/errands.hpp"
#include "kernels/finish.hpp"

using namespace moetail::kernels;
namespace device = moetail::device;

extern "C" __global__ void __launch_bounds__(kThreads, kMinBlocks)
    moetail_front(const __grid_constant__ Args args) {
  extern __shared__ __align__(128) moetail::protocol::u8 shared[];
  Tail tail = make_tail(args, device::shared_address(shared));
  const int num_iterations = num_tiles(tail) * tail.num_row_blocks();

  mark<Mark::begin>(tail);
  open_block(tail, num_iterations);
  trigger_at(Trigger::at_entry);
  if constexpr (!kPollsSlots) device::wait_for_predecessor();
  mark<Mark::ready>(tail);
  trigger_at(Trigger::after_wait);

  bool alive = publish_latents(tail);
  mark<Mark::published>(tail);
  if constexpr (kPollsSlots && !kPollsShared) device::wait_for_predecessor();
  trigger_at(Trigger::after_publish);
  if (alive) alive = run_errands(tail);
  trigger_at(Trigger::after_errands);
  // Here already: at the end the launch would wait for the counter's answer.
  if (kArrivesEarly && tail.thread == kControlThread) tail.arrived = arrive(tail);
  mark<Mark::rearmed>(tail);
  reduce_and_project(tail, alive, num_iterations);
  if constexpr (kRearmsLate)
    if (alive) rearm_previous(tail, errand_thread(tail), tail.block(), kBlocks);
  close_trace(tail);
}
