// SPDX-License-Identifier: Apache-2.0
// Where tests get hold of the engine: a call at every synchronisation site, which may delay the rank or make
// it leave early.
#pragma once

#include "protocol/site.hpp"
#include "protocol/words.hpp"

namespace moetail::cpu {

struct SiteEvent {
  int rank;
  int cluster;
  protocol::Site site;
  protocol::u64 epoch;
};

/// Installed in a rank's BoxState before its first call; called from the rank's threads, several at once
/// where a rank has several clusters.
class Hooks {
 public:
  virtual ~Hooks() = default;
  /// False makes the launch return here, as a rank would that died: nothing later of this call is done.
  virtual bool at(const SiteEvent& event) = 0;
};

}  // namespace moetail::cpu
