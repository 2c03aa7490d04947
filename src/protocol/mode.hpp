// SPDX-License-Identifier: Apache-2.0
// The four ways a call can run, and the forms its routed input comes in. Names are the field's; see
// docs/protocol.md.
#pragma once

#include "protocol/words.hpp"

namespace moetail {

/// Which kernels serve a call. `automatic` lets the policy choose by (T, B).
enum class Mode : int { automatic = 0, front = 1, front_poll = 2, publish = 3, twoshot = 4 };

/// How the routed experts' result reaches the tail.
enum class Form : int {
  expanded = 0,   ///< rows [B*K, L] bf16 and weights [B, K]: row b*K + k is route k of token b
  permuted = 1,   ///< rows [P, L] bf16, map [B, K] int32 (negative: dropped route) and weights [B, K]
  partial = 2,    ///< an already finalized partial [B, L] bf16
  published = 3,  ///< the user's kernel put it into the mailbox (publish, twoshot) or the slots (front_poll)
};

enum class WeightType : int { bf16 = 0, fp32 = 1 };

namespace protocol {

MOETAIL_FN constexpr const char* mode_name(Mode mode) {
  switch (mode) {
    case Mode::automatic: return "auto";
    case Mode::front: return "front";
    case Mode::front_poll: return "front_poll";
    case Mode::publish: return "publish";
    case Mode::twoshot: return "twoshot";
  }
  return "?";
}

MOETAIL_FN constexpr const char* form_name(Form form) {
  switch (form) {
    case Form::expanded: return "rows";
    case Form::permuted: return "permuted";
    case Form::partial: return "partial";
    case Form::published: return "published";
  }
  return "?";
}

}  // namespace protocol
}  // namespace moetail
