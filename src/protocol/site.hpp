// SPDX-License-Identifier: Apache-2.0
// The synchronisation sites, numbered once. Code, fault records, traces, the model and docs/protocol.md use
// these names; the numbers are part of the fault record and never change.
#pragma once

#include "protocol/words.hpp"

namespace moetail::protocol {

enum class Site : u32 {
  none = 0,
  epoch = 1,           ///< load of the epoch at the start of a call, its advance at the end
  header_publish = 2,  ///< each rank tells every peer what it is about to run
  header_poll = 3,
  rows_fill = 4,  ///< front_poll producers fill G, W and S
  rows_poll = 5,
  latent_publish = 6,
  latent_poll = 7,
  shared_push = 8,
  shared_poll = 9,
  reduced_publish = 10,
  reduced_poll = 11,
  twoshot_push = 12,    ///< column chunks of the partial to their owners
  twoshot_sum = 13,     ///< the owner polls and sums them
  gather_publish = 14,  ///< the owner hands its chunk's sum to every rank
  gather_poll = 15,
  out_publish = 16,
  consume = 17,        ///< a consumer polls the output row
  rearm = 18,          ///< what the previous call dirtied is filled with the sentinel again
  consume_rearm = 19,  ///< a consumer fills the output row it has read with the sentinel again
};
inline constexpr int kSites = 20;

MOETAIL_FN constexpr const char* site_name(Site site) {
  constexpr const char* kNames[kSites] = {"none",         "epoch",       "header_publish",  "header_poll",
                                          "rows_fill",    "rows_poll",   "latent_publish",  "latent_poll",
                                          "shared_push",  "shared_poll", "reduced_publish", "reduced_poll",
                                          "twoshot_push", "twoshot_sum", "gather_publish",  "gather_poll",
                                          "out_publish",  "consume",     "rearm",           "consume_rearm"};
  return static_cast<u32>(site) < static_cast<u32>(kSites) ? kNames[static_cast<u32>(site)] : "?";
}

}  // namespace moetail::protocol
