// SPDX-License-Identifier: Apache-2.0
// The safeguards of the protocol that a build can leave out, one by one, to prove that the test of each can
// fail. Nothing but the negative controls (tests/safeguard_test.cpp, tests/gpu/control_cases.cpp, the explorer's
// variants) is ever built with one of these set. What concerns the order of launches is in protocol/order.hpp.
#pragma once

namespace moetail::protocol {

#if defined(MOETAIL_WITHOUT_SENTINEL_CLEANUP)
inline constexpr bool kCleansSentinel = false;
#else
inline constexpr bool kCleansSentinel = true;
#endif

// Why three: docs/protocol.md, "Why the re-arm needs no order of its own".
inline constexpr int kSlots = 3;
// How many of them calls take in turns. The layout keeps all three, so that a kernel without the third still
// shares its boxes with the host and with other kernels.
#if defined(MOETAIL_WITHOUT_THIRD_SLOT)
inline constexpr int kRingSlots = 2;
#else
inline constexpr int kRingSlots = kSlots;
#endif

#if defined(MOETAIL_WITHOUT_REARM_SIZE)
inline constexpr bool kRearmsByRecord = false;
#else
inline constexpr bool kRearmsByRecord = true;
#endif

#if defined(MOETAIL_WITHOUT_RANK_ORDER)
inline constexpr bool kSumsInRankOrder = false;
#else
inline constexpr bool kSumsInRankOrder = true;
#endif

// The re-arm fills the previous call's slot, never the next one's, where a faster peer may already write.
#if defined(MOETAIL_WITHOUT_REARM_SLOT)
inline constexpr bool kRearmsPrevious = false;
#else
inline constexpr bool kRearmsPrevious = true;
#endif

// Every word of a line is compared, not the first alone.
#if defined(MOETAIL_WITHOUT_EVERY_WORD)
inline constexpr bool kComparesEveryWord = false;
#else
inline constexpr bool kComparesEveryWord = true;
#endif

// Every call advances the epoch.
#if defined(MOETAIL_WITHOUT_EPOCH_ADVANCE)
inline constexpr bool kAdvancesEpoch = false;
#else
inline constexpr bool kAdvancesEpoch = true;
#endif

// Two records in turns, not one that a call overwrites while its own clusters still read it.
#if defined(MOETAIL_WITHOUT_TWO_RECORDS)
inline constexpr bool kAlternatesRecords = false;
#else
inline constexpr bool kAlternatesRecords = true;
#endif

// Ranks compare their headers before they use data.
#if defined(MOETAIL_WITHOUT_HEADER_CHECK)
inline constexpr bool kComparesHeaders = false;
#else
inline constexpr bool kComparesHeaders = true;
#endif

// Kernels, and launches of the explorer: griddepcontrol.wait before what an earlier launch of the stream has written.
#if defined(MOETAIL_WITHOUT_DEPENDENCY_WAIT)
inline constexpr bool kWaitsForPredecessor = false;
#else
inline constexpr bool kWaitsForPredecessor = true;
#endif

// The block that arrives last advances the epoch, not the first one that has read it.
#if defined(MOETAIL_WITHOUT_LAST_ARRIVAL)
inline constexpr bool kLastBlockAdvances = false;
#else
inline constexpr bool kLastBlockAdvances = true;
#endif

}  // namespace moetail::protocol
