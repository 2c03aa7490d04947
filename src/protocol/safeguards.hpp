// SPDX-License-Identifier: Apache-2.0
// The safeguards of the protocol that a build can leave out, one by one, to prove that the test of each can
// fail. Nothing but the negative controls (tests/safeguard_test.cpp, the explorer) is ever built with one of
// these set.
#pragma once

namespace moetail::protocol {

#if defined(MOETAIL_WITHOUT_SENTINEL_CLEANUP)
inline constexpr bool kCleansSentinel = false;
#else
inline constexpr bool kCleansSentinel = true;
#endif

#if defined(MOETAIL_WITHOUT_THIRD_SLOT)
inline constexpr int kSlots = 2;
#else
// Why three: docs/protocol.md, "Three slots".
inline constexpr int kSlots = 3;
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

}  // namespace moetail::protocol
