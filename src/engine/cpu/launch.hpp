// SPDX-License-Identifier: Apache-2.0
// The launches of the CPU engine, one function a kernel: what a rank's stream runs. Each is called once by
// every cluster of the launch with the same arguments, and returns false when the call ended early (a fault,
// or a test hook).
#pragma once

#include "engine/cpu/cluster.hpp"
#include "protocol/mode.hpp"

namespace moetail::cpu {

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

/// A call of a layer's tail on one rank, as all of its kernels see it.
struct TailCall {
  Mode mode = Mode::front;
  int batch = 0;
  int layer = 0;
  bool shares_reduced = false;
  bool polls_slots = false;   ///< front_poll: routed rows come through G and W
  bool polls_shared = false;  ///< front_poll: the shared partial comes through S
  RoutedInput routed;
  const u16* shared = nullptr;    ///< [B, H]
  const u16* residual = nullptr;  ///< [B, H] or null
  const u16* shard = nullptr;     ///< [H/T, L]
  const u16* norm = nullptr;      ///< [L]
};

/// front and front_poll: finalize, publish, push, reduce, up projection, output, in one launch.
bool front_tail(Cluster& cluster, const TailCall& call);

/// publish and twoshot: what is left once the partials and the shared shards are under way.
bool wave_tail(Cluster& cluster, const TailCall& call);

/// Plays the experts' epilogue in publish and twoshot mode: finalizes this rank's rows and publishes them.
bool publish_partials(Cluster& cluster, const TailCall& call);

/// Plays the experts in front_poll mode: fills G and W, and S where `call.polls_shared`.
bool fill_slots(Cluster& cluster, const TailCall& call);

/// Sends the shared partial's shards and this rank's header: publish and twoshot modes, main or side stream.
bool push_shared(Cluster& cluster, const TailCall& call);

/// Copies the output rows to `destination` [batch, H] and re-arms them; NaN rows on a faulted box.
bool take_rows(Cluster& cluster, int batch, u16* destination);

// One row at a time, for a user's own code on the rank's stream. `token` and sizes were checked by the
// caller.
bool publish_partial_row(Cluster& cluster, bool twoshot, int token, const u16* row);
void fill_route_row(Cluster& cluster, int token, int k, const u16* row, float weight);
void fill_dropped(Cluster& cluster, int token, int k);
void fill_shared_row(Cluster& cluster, int token, const u16* row);
bool consume_out_row(Cluster& cluster, int token, u16* row);

}  // namespace moetail::cpu
