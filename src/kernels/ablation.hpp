// SPDX-License-Identifier: Apache-2.0
// What a tail costs where: kernels in which a stage is left out, or done twice. Nothing but the experiments of the GPU program is built with one
// of these macros; without them nothing is left of this file in a kernel.
//   MOETAIL_LEFT_OUT=bits, MOETAIL_TWICE=bits   one bit a Stage
//   MOETAIL_KEEPS_MAILBOXES=1                   replay: the own mailboxes' re-arm goes to the scratch box too, so that what was filled beforehand
//                                               stays, and nobody waits in vain for what is left out
#pragma once

#include "device/annotate.hpp"
#include "kernels/stage.hpp"

#ifndef MOETAIL_LEFT_OUT
#define MOETAIL_LEFT_OUT 0
#endif
#ifndef MOETAIL_TWICE
#define MOETAIL_TWICE 0
#endif
#ifndef MOETAIL_KEEPS_MAILBOXES
#define MOETAIL_KEEPS_MAILBOXES 0
#endif

namespace moetail::kernels {

template <Stage kStage>
inline constexpr int kTimes = (MOETAIL_LEFT_OUT & stage_bit(kStage)) != 0 ? 0
                              : (MOETAIL_TWICE& stage_bit(kStage)) != 0   ? 2
                                                                          : 1;
inline constexpr bool kKeepsMailboxes = MOETAIL_KEEPS_MAILBOXES != 0;

/// `work()` once, but in an experiment on its stage.
template <Stage kStage, class Work>
MOETAIL_DEVICE void each_time(const Work& work) {
#pragma unroll
  for (int i = 0; i < kTimes<kStage>; ++i) work();
}

}  // namespace moetail::kernels
