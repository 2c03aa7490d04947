// SPDX-License-Identifier: Apache-2.0
// What ranks send in place of activations, and what their output row has to be: integer mixing, so that every word counts and so does the
// order of the ranks. It knows no mailbox and none of the protocol's safeguards.
#pragma once

#include "protocol/words.hpp"
#include "verify/explore/config.hpp"

namespace moetail::explore {

using protocol::Line;
using protocol::u32;
using protocol::u64;

inline constexpr u32 kForeignSentinel = 0xFFFFFFFFu;
inline constexpr u32 kForeignCleaned = 0x7FFF7FFFu;

/// Of two words; never the sentinel.
inline u32 mixed(u32 a, u32 b) {
  const u32 h = (a ^ b * 0x9E3779B1u) * 0x85EBCA77u + 0x165667B1u;
  return (h ^ h >> 15) & 0x7FFFFFFFu;
}

enum class Sent : u32 { partial = 1, shared = 2, row = 3, weight = 4 };

/// Word `word` of what `rank` has for token `token` in call `call`. The last rank's third word is the sentinel: foreign data may hold it.
inline u32 sent_word(Sent what, int rank, int ranks, int call, int token, int word) {
  if (rank == ranks - 1 && word == 2 && what != Sent::weight) return kForeignSentinel;
  u32 h = mixed(static_cast<u32>(what), static_cast<u32>(rank));
  h = mixed(h, static_cast<u32>(call));
  h = mixed(h, static_cast<u32>(token));
  // A weight is a number: an exponent of ones would make it a NaN.
  return mixed(h, static_cast<u32>(word)) & (what == Sent::weight ? 0x3FFFFFFFu : 0x7FFFFFFFu);
}

inline u32 arrived_word(Sent what, int rank, int ranks, int call, int token, int word) {
  const u32 sent = sent_word(what, rank, ranks, call, token, word);
  return sent == kForeignSentinel ? kForeignCleaned : sent;
}

inline Line sent_line(Sent what, int rank, int ranks, int call, int token, int line) {
  Line sent;
  for (int i = 0; i < 4; ++i) sent.word[i] = sent_word(what, rank, ranks, call, token, 4 * line + i);
  return sent;
}

/// A latent word out of a routed row's word and its weight.
inline u32 weighted(u32 row, u32 weight) {
  return mixed(row, weight);
}

/// Word `word` of token `token`'s output row, as it has to be.
inline u32 expected_word(const Config& config, int call, int token, int word) {
  const auto shape = config.shape();
  const bool polls = config.calls[static_cast<std::size_t>(call)].mode == Mode::front_poll;
  u32 norm = 0;
  for (int i = 0; i < shape.latent / 2; ++i) {
    u32 x = 0;
    for (int rank = 0; rank < config.ranks; ++rank) {
      const u32 latent = polls ? weighted(arrived_word(Sent::row, rank, config.ranks, call, token, i),
                                          arrived_word(Sent::weight, rank, config.ranks, call, token, 0))
                               : arrived_word(Sent::partial, rank, config.ranks, call, token, i);
      x = mixed(x, latent);
    }
    norm = mixed(norm, x);
  }
  u32 shared = 0;
  for (int rank = 0; rank < config.ranks; ++rank)
    shared = mixed(shared, arrived_word(Sent::shared, rank, config.ranks, call, token, word));
  return mixed(norm, shared);
}

}  // namespace moetail::explore
