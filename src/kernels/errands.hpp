// SPDX-License-Identifier: Apache-2.0
// What a tail that publishes does between its own publication and its polls.
#pragma once

#include "kernels/reduce.hpp"

namespace moetail::kernels {

/// Header, shared shards, rows that the rank sums once, re-arm, in this order: peers wait for the first two, this rank's other blocks for the
/// third, and the last is done while those come. False after a fault.
MOETAIL_DEVICE bool run_errands(const Tail& tail) {
  const i32 errand = errand_thread(tail);
  const bool takes = errand < kErrandThreads;
  if constexpr (!kSumsOnce)
    if (!takes) return true;
  bool alive = true;
  if (takes) {
    if constexpr (!protocol::kLastBlockAdvances)
      if (errand == 0 && tail.block() == 0) advance_epoch(tail);
    if constexpr (kPushes) {
      if (tail.block() == 0 && tail.warp == kSendsHeaderWarp)
        each_time<Stage::header>([&] { publish_header(tail); });
      each_time<Stage::push>([&] { alive = push_shards(tail, errand, tail.block(), kBlocks); });
    }
  }
  mark<Mark::pushed>(tail);
  alive = alive && prepare_rows(tail);
  if constexpr (!kRearmsLate && !kRearmsInExchange) rearm_previous(tail, errand, tail.block(), kBlocks);
  // Blocks that do not compare find out by the poison that a mismatch leaves.
  if (alive && tail.block() == 0 && tail.warp == kHeaderWarp)
    each_time<Stage::header>([&] { alive = check_header(tail); });
  return alive;
}

}  // namespace moetail::kernels
