// SPDX-License-Identifier: Apache-2.0
// Which launch of a rank begins after which. The runtime enqueues by it, the explorer's schedule follows it, and each line can be left
// out by a build that proves that it is needed.
#pragma once

#include "protocol/safeguards.hpp"

namespace moetail::protocol {

/// A rank has one main stream and at most one side stream. On the main stream a call is: the experts' epilogue (publish, twoshot), the
/// tail, the consumer; a push is on either.
struct LaunchOrder {
  /// A launch uses nothing of its box before the launch before it in its stream is complete.
  bool launch_after_predecessor;
  /// A push on the side stream begins after the consumer of the call before: it reads the epoch that this call's tail finds.
  bool push_after_consumer;
  /// A tail begins after the consumer of the call before, which has re-armed the output row by then.
  bool tail_after_consumer;
};

#if defined(MOETAIL_WITHOUT_PUSH_ORDER)
inline constexpr bool kPushAfterConsumer = false;
#else
inline constexpr bool kPushAfterConsumer = true;
#endif

#if defined(MOETAIL_WITHOUT_CONSUMER_ORDER)
inline constexpr bool kTailAfterConsumer = false;
#else
inline constexpr bool kTailAfterConsumer = true;
#endif

inline constexpr LaunchOrder kLaunchOrder{kWaitsForPredecessor, kPushAfterConsumer, kTailAfterConsumer};

}  // namespace moetail::protocol
