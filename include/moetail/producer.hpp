// SPDX-License-Identifier: Apache-2.0
// What a user's own code calls to deliver into, or to read from, the mailboxes, with the structs of protocol/targets.hpp that publish,
// poll_slots and consumer return. Functions of one row are host functions for the CPU engine: each runs inside Stream::launch on the stream
// whose call it belongs to, after the consumer of the previous call. On a GPU a user's kernel calls moetail/device/*.cuh instead.
#pragma once

#include <cstdint>
#include <span>

#include "protocol/targets.hpp"

namespace moetail {

// ---- Ready producers, on both engines: enqueued work, like everything of the door ----

/// Publishes this rank's finalized partial rows [B, L], which lie where the world's launches can address them. `stream`: the rank's main
/// stream. For experts that end in memory and not in a kernel of the user's.
void publish_rows(const PublishTargets& targets, const Stream& stream, std::span<const std::uint16_t> rows);

/// Delivers routed rows (expanded or permuted form) and the shared experts' partial [B, H] into the polled slots. `stream`: the rank's
/// main stream, or its side stream, which the caller has joined to it and joins back.
void fill_rows(const PollSlots& slots, const Stream& stream, const Routed& routed,
               std::span<const std::uint16_t> shared);

// ---- One row at a time, inside Stream::launch, on the CPU engine ----

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
