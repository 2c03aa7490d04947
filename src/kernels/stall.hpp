// SPDX-License-Identifier: Apache-2.0
// Schedules that tests force. Nothing but the GPU program is built with one of these macros; without them nothing is left of this
// file in a kernel.
//   MOETAIL_STALL_NS=n     threads of the rank and block that RankArgs::stall names wait n nanoseconds at the site that it names
//   MOETAIL_LATE_REARM=1   the re-arm's stores come when the output has left, which is as late as the protocol lets them
#pragma once

#include "kernels/view.hpp"
#include "protocol/site.hpp"

namespace moetail::kernels {

#if defined(MOETAIL_LATE_REARM)
inline constexpr bool kRearmsLate = true;
#else
inline constexpr bool kRearmsLate = false;
#endif

/// `block`: of this rank.
#if defined(MOETAIL_STALL_NS)
template <protocol::Site kSite>
MOETAIL_DEVICE void stall(const RankArgs& args, i32 block) {
  if (stalled_site(args.stall) != static_cast<i32>(kSite)) return;
  const i32 only = stalled_block(args.stall);
  if (only >= 0 && only != block) return;
  const u64 end = device::global_time_ns() + MOETAIL_STALL_NS;
  while (device::global_time_ns() < end) {
  }
}
#else
template <protocol::Site kSite>
MOETAIL_DEVICE void stall(const RankArgs&, i32) {}
#endif

}  // namespace moetail::kernels
