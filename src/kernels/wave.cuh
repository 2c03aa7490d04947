// SPDX-License-Identifier: Apache-2.0
// The tail of publish and twoshot mode: latents and shared shards are under way when it starts, other launches sent them.
#include "kernels/finish.hpp"

using namespace moetail::kernels;
namespace device = moetail::device;

extern "C" __global__ void __launch_bounds__(kThreads, kMinBlocks)
    moetail_wave(const __grid_constant__ Args args) {
  extern __shared__ __align__(128) moetail::protocol::u8 shared[];
  Tail tail = make_tail(args, device::shared_address(shared));
  const int num_iterations = num_tiles(tail) * tail.num_row_blocks();

  mark<Mark::begin>(tail);
  open_block(tail, num_iterations);
  trigger_at(Trigger::at_entry);
  if constexpr (!kStartsEarly) device::wait_for_predecessor();
  mark<Mark::ready>(tail);
  trigger_at(Trigger::after_wait);

  bool alive = use_control(tail, load_control(tail));
  // Peers and this rank's other blocks wait for these sums; the re-arm is done while theirs come.
  alive = alive && prepare_rows(tail);
  if (alive) rearm_previous(tail, errand_thread(tail), tail.block(), kBlocks);
  mark<Mark::rearmed>(tail);
  trigger_at(Trigger::after_errands);
  if (alive && tail.block() == 0 && tail.warp == kHeaderWarp) alive = check_header(tail);
  reduce_and_project(tail, alive, num_iterations);
  close_trace(tail);
}
