// SPDX-License-Identifier: Apache-2.0
// What a launch is told: plain structs passed by value, written by the host and read by kernels out of constant memory. Nothing
// here depends on a kernel's compiled shape but the number of ranks of a launch.
#pragma once

#include "protocol/fault.hpp"
#include "protocol/shape.hpp"
#include "protocol/words.hpp"

namespace moetail::kernels {

using protocol::FaultCell;
using protocol::i32;
using protocol::u16;
using protocol::u32;
using protocol::u64;
using protocol::u8;

/// A rank's inputs of one call; what the form does not use is null. Rows are contiguous and 16-byte aligned.
struct CallInputs {
  const u16* rows = nullptr;      ///< expanded [B*K, L] or permuted [P, L] bf16
  const i32* map = nullptr;       ///< permuted [B, K]
  const void* weights = nullptr;  ///< [B, K] bf16 or fp32
  const u16* partial = nullptr;   ///< partial [B, L] bf16
  const u16* shared = nullptr;    ///< [B, H] bf16
  const u16* residual = nullptr;  ///< [B, H] bf16
  const u16* shard = nullptr;     ///< [H/T, L] bf16, this rank's rows of W_up
  const u16* norm = nullptr;      ///< [L] bf16
  u16* destination = nullptr;     ///< take: [B, H] bf16; a traced tail, which has none: its rank's TraceSlots
  i32 num_rows = 0;               ///< P
  i32 layer = 0;                  ///< label of the layer, 0: none
};

/// One rank's place in the world and its call.
struct RankArgs {
  u8* peer[protocol::kMaxRanks] = {};  ///< every rank's box; replay: the peers' are one scratch box
  u8* multicast = nullptr;  ///< one address whose stores reach every rank; kernels built for it only
  u8* rearm_others =
      nullptr;  ///< whose copies of other sources' mailboxes are re-armed: the own box; replay: the scratch box
  FaultCell* fault = nullptr;
  u64 deadline_ns = 0;        ///< of every wait; 0: none
  u64 first_deadline_ns = 0;  ///< in the first call of a box
  i32 rank = 0;
  i32 stall = 0;  ///< tests only: stall_at
  CallInputs call;
};

/// RankArgs::stall: block `block` of the rank, or all with -1, stalls at site `site` (kernels/stall.hpp).
MOETAIL_FN constexpr i32 stall_at(i32 site, i32 block = -1) {
  return site | (block + 1) << 8;
}
MOETAIL_FN constexpr i32 stalled_site(i32 stall) {
  return stall & 0xFF;
}
MOETAIL_FN constexpr i32 stalled_block(i32 stall) {
  return (stall >> 8) - 1;
}

/// The one parameter of every kernel. `kLaunchRanks`: 1, or T in loopback.
template <int kLaunchRanks>
struct LaunchArgs {
  i32 batch = 0;
  i32 reserved = 0;
  RankArgs rank[kLaunchRanks];
};

}  // namespace moetail::kernels
