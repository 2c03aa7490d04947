// SPDX-License-Identifier: Apache-2.0
// Splits a count over threads. The judges own no pool: a check is milliseconds long, a thread starts in
// microseconds.
#pragma once

#include <functional>

#include "protocol/words.hpp"

namespace moetail::verify {

/// Threads that for_parts uses when asked for `requested`; 0 asks for one per core.
int thread_count(int requested = 0);

/// `requested` if it is above 0; else so many threads that each has about a million of the `steps` of work:
/// below that, starting a thread costs more than it saves.
int threads_for(protocol::u64 steps, int requested = 0);

/// Cuts [0, count) into at most thread_count(threads) parts of whole granules (the last may be shorter) and
/// calls `work(part, begin, end)` for each, on its own thread; returns when all are done. How it is cut
/// depends on the arguments and the number of cores alone. The first exception of a part is thrown again
/// here.
void for_parts(protocol::u64 count, protocol::u64 granule,
               const std::function<void(int part, protocol::u64 begin, protocol::u64 end)>& work,
               int threads = 0);

}  // namespace moetail::verify
