// SPDX-License-Identifier: Apache-2.0
// The K routes of a token as finalize wants them: a row pointer (null: dropped) and a weight each, whatever
// the form.
#pragma once

#include "engine/cpu/launch.hpp"
#include "protocol/numerics.hpp"

namespace moetail::cpu {

struct Routes {
  const u16* rows[protocol::kMaxTopK];
  float weights[protocol::kMaxTopK];
};

/// Routes of `token` from the caller's rows. False after a map index beyond the rows, which is never
/// dereferenced.
bool routes_from_memory(Cluster& cluster, const RoutedInput& routed, int token, Routes& routes);

/// Routes of `token` in the polled slots, once this cluster's columns [begin_line, end_line) of all of them are there.
bool routes_from_slots(Cluster& cluster, int token, int begin_line, int end_line, Routes& routes);

}  // namespace moetail::cpu
