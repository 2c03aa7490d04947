// SPDX-License-Identifier: Apache-2.0
// What a user's own code calls on its stream to deliver into, or to read from, the mailboxes: host functions
// for the CPU engine. Each runs inside Stream::launch on the stream whose call it belongs to, after the
// consumer of the previous call.
#pragma once

#include <cstdint>
#include <span>

#include "protocol/mailbox.hpp"

namespace moetail {

/// Direct (publish mode) or two-shot destinations, as PreparedTail::publish gives them. The epoch is read
/// from the box when a row is published, never earlier, so the struct may be captured and used again as long
/// as the batch and mode stay.
struct PublishTargets {
  protocol::BoxView box;
  const void* engine = nullptr;  ///< the CPU engine's state of this rank
  int batch = 0;
  bool twoshot = false;
};

/// The slots of front_poll mode: G [K, L] and W [K] of each token, S [H], as PreparedTail::poll_slots gives
/// them.
struct PollSlots {
  protocol::BoxView box;
  const void* engine = nullptr;
  int batch = 0;
};

/// The output rows in place, as TailBox::consumer gives them.
struct OutConsumer {
  protocol::BoxView box;
  const void* engine = nullptr;
  int batch = 0;
  std::uint64_t call = 0;
};

/// Publishes this rank's finalized partial row of `token` ([L] bf16) to the ranks that need it. Sentinel
/// words are cleaned. Every token of the batch must be published once. Throws Code::invalid_argument on a
/// wrong token or size.
void publish_partial(const PublishTargets& targets, int token, std::span<const std::uint16_t> row);

/// Delivers route `k` of `token`: its row ([L] bf16) and its weight. A NaN weight stays a NaN.
void fill_route(const PollSlots& slots, int token, int k, std::span<const std::uint16_t> row, float weight);

/// Marks route `k` of `token` as dropped: it is skipped, and its row is not waited for.
void fill_dropped_route(const PollSlots& slots, int token, int k);

/// Delivers this rank's shared experts' partial row of `token` ([H] bf16).
void fill_shared(const PollSlots& slots, int token, std::span<const std::uint16_t> row);

/// Waits for the output row of `token`, copies it to `row` ([H] bf16) and re-arms it. Every row of the batch
/// must be consumed exactly once before the next call of this box starts. False, with NaN in `row`, on a
/// faulted box.
bool consume_row(const OutConsumer& consumer, int token, std::span<std::uint16_t> row);

}  // namespace moetail
