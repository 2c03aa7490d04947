// SPDX-License-Identifier: Apache-2.0
// The sizes of a tail and the rules they obey. Every rule has a name, so that a rejection can say which one
// it was.
#pragma once

#include "protocol/words.hpp"

namespace moetail::protocol {

inline constexpr int kMaxRanks = 16;
inline constexpr int kMaxTopK = 64;
// A call header carries the batch in 16 bits; the mailboxes of a box also stay far below 2^40 bytes with it.
inline constexpr int kMaxCapacity = 65535;
inline constexpr int kMaxColumns = 1 << 20;

/// Sizes agreed by all ranks when a box is made. The defaults are Kimi K3's.
struct Shape {
  i32 hidden = 7168;       ///< H, columns of the output row
  i32 latent = 3584;       ///< L, columns of the latent row
  i32 ranks = 8;           ///< T, the tensor-parallel size
  i32 top_k = 16;          ///< K, routed experts of a token
  i32 capacity = 128;      ///< C, the largest batch of a box
  i32 poll_capacity = 16;  ///< PC, the largest batch of front_poll mode
  float eps = 1e-5f;       ///< added to the mean square before the reciprocal root

  MOETAIL_FN constexpr i32 shard() const { return hidden / ranks; }  ///< H/T, columns a rank owns
  MOETAIL_FN constexpr i32 chunk() const { return latent / ranks; }  ///< L/T, columns a two-shot owner sums
};

enum class ShapeRule : int { ok, ranks, hidden, latent, latent_twoshot, top_k, capacity, poll_capacity, eps };

MOETAIL_FN constexpr bool is_supported_rank_count(i32 ranks) {
  return ranks == 1 || ranks == 2 || ranks == 4 || ranks == 8 || ranks == 16;
}

/// The first rule that `shape` breaks, or ShapeRule::ok. Two-shot's own rule is asked for separately, because
/// a shape that breaks only that one still serves every other mode.
MOETAIL_FN constexpr ShapeRule first_broken_rule(const Shape& shape) {
  if (!is_supported_rank_count(shape.ranks)) return ShapeRule::ranks;
  if (shape.hidden < 8 * shape.ranks || shape.hidden > kMaxColumns || shape.hidden % (8 * shape.ranks) != 0)
    return ShapeRule::hidden;
  if (shape.latent < 8 || shape.latent > kMaxColumns || shape.latent % 8 != 0) return ShapeRule::latent;
  if (shape.top_k < 1 || shape.top_k > kMaxTopK) return ShapeRule::top_k;
  if (shape.capacity < 1 || shape.capacity > kMaxCapacity) return ShapeRule::capacity;
  if (shape.poll_capacity < 0 || shape.poll_capacity > shape.capacity) return ShapeRule::poll_capacity;
  if (!(shape.eps >= 0.0f && shape.eps <= 1.0f)) return ShapeRule::eps;
  return ShapeRule::ok;
}

MOETAIL_FN constexpr bool allows_twoshot(const Shape& shape) {
  return shape.latent % (8 * shape.ranks) == 0;
}

/// The field a rule speaks of, and what it accepts: the two halves of an error message.
struct RuleText {
  const char* field;
  const char* accepted;
};

MOETAIL_FN constexpr RuleText rule_text(ShapeRule rule) {
  switch (rule) {
    case ShapeRule::ranks: return {"ranks", "1, 2, 4, 8 or 16"};
    case ShapeRule::hidden: return {"hidden", "a multiple of 8 * ranks, at most 1048576"};
    case ShapeRule::latent: return {"latent", "a multiple of 8, at most 1048576"};
    case ShapeRule::latent_twoshot: return {"latent", "a multiple of 8 * ranks in twoshot mode"};
    case ShapeRule::top_k: return {"top_k", "1 to 64"};
    case ShapeRule::capacity: return {"capacity", "1 to 65535"};
    case ShapeRule::poll_capacity: return {"poll_capacity", "0 to capacity"};
    case ShapeRule::eps: return {"eps", "0 to 1"};
    case ShapeRule::ok: break;
  }
  return {"", ""};
}

/// The value of the field that `rule` speaks of, for the message (eps is printed by the caller as a float).
MOETAIL_FN constexpr double rule_value(const Shape& shape, ShapeRule rule) {
  switch (rule) {
    case ShapeRule::ranks: return shape.ranks;
    case ShapeRule::hidden: return shape.hidden;
    case ShapeRule::latent:
    case ShapeRule::latent_twoshot: return shape.latent;
    case ShapeRule::top_k: return shape.top_k;
    case ShapeRule::capacity: return shape.capacity;
    case ShapeRule::poll_capacity: return shape.poll_capacity;
    case ShapeRule::eps: return shape.eps;
    case ShapeRule::ok: break;
  }
  return 0;
}

}  // namespace moetail::protocol
