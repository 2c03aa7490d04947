// SPDX-License-Identifier: Apache-2.0
// The one helper every wait goes through: spin, look at the clock and the poison now and then, one last look, fault.
//
// A memory policy `Mem` provides, for waits:
//   Ticket ticket()                                    taken before each look at the data: a parked reader's bell count
//   WaitVerdict pause(spins, ticket, missing, spot)    one spin, or a park until `missing` more publications may be
//                                                      there; raises the fault where the box is poisoned or aborted
//   void raise(FaultKind, const Spot&)                 first-wins fault record, poison of this box and of the peers
#pragma once

#include "protocol/fault.hpp"
#include "protocol/site.hpp"

namespace moetail::protocol {

/// Where a wait stands and what it misses: what its fault record will say. A look at the data updates it.
struct Spot {
  Site site = Site::none;
  i32 peer = -1;
  i32 token = -1;
  i32 k = -1;
  u64 expected = 0;
  u64 seen = 0;
  HeaderField field = HeaderField::none;
};

enum class WaitVerdict : int { go_on, expired, ended };

/// Calls `look(spot)` until it returns 0, the number of publications that are still missing. False when the
/// wait ended otherwise: the deadline passed (a fault is raised), or the box was found poisoned or aborted.
template <class Mem, class Look>
MOETAIL_FN bool wait_until(Mem& mem, Spot& spot, Look&& look) {
  // One call of `look`, so that it is compiled once: on a GPU it is inlined with everything it loads.
  bool is_last_look = false;
  for (u32 spins = 0;; ++spins) {
    const auto ticket = mem.ticket();
    const int missing = look(spot);
    if (missing == 0) return true;
    if (is_last_look) {
      mem.raise(FaultKind::deadline, spot);
      return false;
    }
    const WaitVerdict verdict = mem.pause(spins, ticket, missing, spot);
    if (verdict == WaitVerdict::ended) return false;
    // A thread that was not scheduled for long may find its deadline passed and its data there.
    is_last_look = verdict == WaitVerdict::expired;
  }
}

}  // namespace moetail::protocol
