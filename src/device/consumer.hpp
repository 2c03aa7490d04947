// SPDX-License-Identifier: Apache-2.0
// A user's kernel consumes the output rows where they lie (moetail/device/consume.cuh).
#pragma once

#include "device/box.hpp"

namespace moetail::device {

// A safeguard that nothing but its negative control (tests/gpu/user_cases.cpp) is ever built without.
#if defined(MOETAIL_WITHOUT_CONSUMER_REARM)
inline constexpr bool kConsumerRearms = false;
#else
inline constexpr bool kConsumerRearms = true;
#endif

/// Polls output rows [B, H] in place and re-arms them behind itself. Every line of every row of the batch is taken exactly once, by one
/// thread each, in this launch: the next call's rows come where these lay. Waits end: with the data, or with a fault, after which every
/// line is NaN and `is_alive` is false in the thread that waited.
class OutReader {
 public:
  /// Reads epoch and poison, so: after the tail in stream order, and in a dependent launch after griddepcontrol.wait
  /// (wait_for_predecessor), which also says that the tail has advanced the epoch.
  MOETAIL_DEVICE explicit OutReader(const OutConsumer& consumer)
      : consumer_(consumer), epoch_(load_epoch(consumer.box) - 1) {
    const u64 poison = load_relaxed_sys(consumer.box.control(Control::poison));
    if (__builtin_expect(poison == 0, 1)) return;
    is_alive_ = false;
    if (poison < kRecorded)
      raise_link_fault({consumer.box, consumer.link, epoch_}, FaultKind::poisoned, Spot{Site::consume}, 0);
  }

  MOETAIL_DEVICE int batch() const { return consumer_.batch; }
  /// Lines of 8 columns in a row.
  MOETAIL_DEVICE int lines() const { return protocol::lines_of(consumer_.box.layout.shape.hidden); }
  MOETAIL_DEVICE bool is_alive() const { return is_alive_; }

  /// Columns [8 * line, 8 * line + 8) of `token`, as bf16, once they have come; armed again when this returns.
  MOETAIL_DEVICE Line take_line(int token, int line) {
    const BoxView& box = consumer_.box;
    const i32 owner = line / protocol::lines_of(box.layout.shape.shard());
    Line* const at = box.mine<Line>(Region::out, 0, 0, token) + line;
    Line columns;
    WaiterOf<LinkRank> waiter({box, consumer_.link, epoch_});
    Spot spot{Site::consume, owner, token};
    is_alive_ = is_alive_ && protocol::wait_until(waiter, spot, [&](Spot&) {
                  columns = load_relaxed_sys(at);
                  return protocol::has_empty(columns) ? 1 : 0;
                });
    if (!is_alive_) return protocol::line_of(protocol::kCleanedWord);
    if constexpr (kConsumerRearms) rearm(owner, at);
    return columns;
  }
  /// A whole row to `to` [H], 16-byte aligned.
  MOETAIL_DEVICE void take_row(int token, u16* to, Threads threads) {
    for (int line = threads.index; line < lines(); line += threads.count)
      store_weak(reinterpret_cast<Line*>(to) + line, take_line(token, line));
  }

 private:
  /// In replay the peers' columns stay as they were filled.
  MOETAIL_DEVICE void rearm(i32 owner, Line* at) const {
    const BoxView& box = consumer_.box;
    u8* const own = box.peer[box.rank];
    u8* const whose = owner == box.rank ? own : consumer_.link.rearm_others;
    store_weak(reinterpret_cast<Line*>(whose + (reinterpret_cast<u8*>(at) - own)),
               protocol::line_of(protocol::kEmptyWord));
  }

  const OutConsumer& consumer_;
  u64 epoch_;
  bool is_alive_ = true;
};

}  // namespace moetail::device
