// SPDX-License-Identifier: Apache-2.0
// What a user's own code gets by value to take part in a call: to publish partial rows, to fill the polled slots, to consume the output
// rows. The same structs serve host functions of the CPU engine (moetail/producer.hpp) and a user's kernels on a GPU
// (moetail/device/*.cuh).
#pragma once

#include "protocol/fault.hpp"
#include "protocol/mailbox.hpp"

namespace moetail {
namespace protocol {

/// What a rank's launches on a GPU need besides its box. Null and 0 on the CPU engine.
struct LaunchLink {
  FaultCell* fault = nullptr;  ///< as the device addresses it
  u8* rearm_others =
      nullptr;          ///< whose copies of other sources' mailboxes are re-armed: the own box, or scratch
  u64 deadline_ns = 0;  ///< of every wait; 0: none
  u64 first_deadline_ns = 0;  ///< in the first call of a box
  i32 layer = 0;              ///< label of the latest tail, for fault records
  bool puts_own = false;      ///< replay: what every rank gets whole is one store, to the own box
};

}  // namespace protocol

/// Direct (publish mode) or two-shot destinations, as PreparedTail::publish gives them. The epoch is read from the box when a row is
/// published, never earlier, so the struct may be captured and used again as long as the batch and mode stay.
struct PublishTargets {
  protocol::BoxView box;
  const void* engine = nullptr;  ///< the engine's state of this rank, for functions of the host
  int batch = 0;
  bool twoshot = false;
  protocol::LaunchLink link;
};

/// The slots of front_poll mode: G [K, L] and W [K] of each token, S [H], as PreparedTail::poll_slots gives them.
struct PollSlots {
  protocol::BoxView box;
  const void* engine = nullptr;
  int batch = 0;
  protocol::LaunchLink link;
};

/// The output rows in place, as TailBox::consumer gives them.
struct OutConsumer {
  protocol::BoxView box;
  const void* engine = nullptr;
  int batch = 0;
  protocol::u64 call = 0;
  protocol::LaunchLink link;
};

}  // namespace moetail
