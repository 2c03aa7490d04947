// SPDX-License-Identifier: Apache-2.0
// The size of an exploration: ranks, blocks, and the calls that all ranks make.
#pragma once

#include <string>
#include <vector>

#include "protocol/fault.hpp"
#include "protocol/mode.hpp"
#include "protocol/shape.hpp"

namespace moetail::explore {

struct CallPlan {
  Mode mode = Mode::front;
  int batch = 1;
  bool shares_reduced = false;  ///< publish: rows are summed once and handed to the rank's other blocks
  bool side_push = false;       ///< publish, twoshot: pushed from the side stream
};

struct Config {
  int ranks = 2;
  int blocks = 2;
  std::vector<CallPlan> calls;
  bool common = false;  ///< one copy of latents and gathered sums for all ranks, as the CPU engine has
  bool rearms_early =
      false;  ///< header, shards and re-arm come first, as in the kernels, the re-arm not behind the output
  bool waves_early = false;  ///< publish, twoshot: the tail begins when the experts' epilogue has only begun
  bool ordered_add = true;   ///< the arrival counter is acquire and release, as in the CPU engine
  bool sums_own =
      false;  ///< front: a block makes its rank's own latents itself and polls only its peers', as kernels of small batches
  int push_blocks = 1;  ///< of a push on the side stream
  bool cuts_push_by_owner =
      false;  ///< whose blocks then each store to one owner's mailboxes alone, not all to their own rank's too
  int odd_call = -1;                                      ///< in this call the last rank's batch is one more
  protocol::FaultKind fault = protocol::FaultKind::none;  ///< how every execution has to end

  /// The kernels' order of work inside a launch, not the CPU engine's.
  bool is_kernel() const { return !ordered_add; }
  /// "2x2x4"
  std::string size() const {
    return std::to_string(ranks) + "x" + std::to_string(blocks) + "x" + std::to_string(calls.size());
  }
  int capacity() const {
    int most = 1;
    for (const CallPlan& call : calls) most = call.batch > most ? call.batch : most;
    return odd_call < 0 ? most : most + 1;
  }
  int batch_of(int rank, int call) const {
    return calls[static_cast<std::size_t>(call)].batch + (call == odd_call && rank == ranks - 1 ? 1 : 0);
  }
  /// The smallest in which every block of every rank has lines of its own.
  protocol::Shape shape() const {
    protocol::Shape shape;
    shape.ranks = ranks;
    shape.latent = 8 * ranks;
    shape.hidden = 8 * ranks * blocks;
    shape.top_k = 1;
    shape.capacity = shape.poll_capacity = capacity();
    return shape;
  }
};

}  // namespace moetail::explore
