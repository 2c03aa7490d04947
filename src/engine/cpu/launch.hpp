// SPDX-License-Identifier: Apache-2.0
// The launches of the CPU engine, one function a kernel: what a rank's stream runs. Each is called once by
// every cluster of the launch with the same arguments, and returns false when the call ended early (a fault,
// or a test hook).
#pragma once

#include "engine/call.hpp"
#include "engine/cpu/cluster.hpp"

namespace moetail::cpu {

using engine::RoutedInput;
using engine::TailCall;
using protocol::i32;
using protocol::u16;

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
