// SPDX-License-Identifier: Apache-2.0
// A checked call of a layer's tail, as every engine gets it: where the rows are and what to do with them.
#pragma once

#include "base/kernel_choice.hpp"
#include "protocol/mode.hpp"
#include "protocol/words.hpp"

namespace moetail::engine {

using protocol::i32;
using protocol::u16;

/// Where a rank's routed rows are. Sizes were checked by the runtime, the map's entries are checked where
/// they are used.
struct RoutedInput {
  Form form = Form::published;
  const u16* rows = nullptr;  ///< expanded [B*K, L] or permuted [P, L]
  i32 num_rows = 0;           ///< P
  const i32* map = nullptr;   ///< permuted [B, K]
  const void* weights = nullptr;
  WeightType weight_type = WeightType::bf16;
  const u16* partial = nullptr;  ///< partial [B, L]
};

/// A call of a layer's tail on one rank, as all of its kernels see it. The addresses are the engine's: of host memory on the CPU, of
/// device memory on a GPU.
struct TailCall {
  Mode mode = Mode::front;
  int batch = 0;
  int layer = 0;
  bool shares_reduced = false;
  bool polls_slots = false;   ///< front_poll: routed rows come through G and W
  bool polls_shared = false;  ///< front_poll: the shared partial comes through S
  bool early = false;         ///< publish, twoshot: the wave may start before its producer is complete
  KernelChoice kernel;        ///< GPU: what the policy asks of the tail's kernel
  /// twoshot: nothing of this call was pushed, nor is published by the user. The tail does both.
  bool in_one_launch = false;
  RoutedInput routed;
  const u16* shared = nullptr;    ///< [B, H]
  const u16* residual = nullptr;  ///< [B, H] or null
  const u16* shard = nullptr;     ///< [H/T, L]
  const u16* norm = nullptr;      ///< [L]
};

}  // namespace moetail::engine
