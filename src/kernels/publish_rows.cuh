// SPDX-License-Identifier: Apache-2.0
// publish_rows: finalized rows [B, L] of any shape, published as a user's own kernel publishes them.
#include "device/cluster.hpp"
#include "device/publisher.hpp"

extern "C" __global__ void __launch_bounds__(256)
    moetail_publish_rows(const __grid_constant__ moetail::PublishTargets targets,
                         const moetail::protocol::u16* rows) {
  namespace device = moetail::device;
  device::wait_for_predecessor();
  device::trigger_dependents();
  const device::Publisher partial(targets);
  const auto threads = device::Threads::of_grid();
  const auto* lines = reinterpret_cast<const device::Line*>(rows);
  for (int i = threads.index; i < partial.batch() * partial.lines(); i += threads.count)
    partial.put_line(i / partial.lines(), i % partial.lines(), device::load_weak(lines + i));
}
