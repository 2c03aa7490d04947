// SPDX-License-Identifier: Apache-2.0
// A user's kernel fills the polled slots of front_poll mode (moetail/device/fill.cuh).
#pragma once

#include "device/box.hpp"
#include "protocol/numerics.hpp"

namespace moetail::device {

/// Delivers routed rows into G, their weights into W and the shared partial into S, in any order and by any threads: each route's weight
/// or its drop once, the row of every route that is not dropped, and S where no push was made. All of it is cleaned of the sentinel.
class SlotFiller {
 public:
  /// Reads the epoch, as Publisher does.
  MOETAIL_DEVICE explicit SlotFiller(const PollSlots& slots)
      : slots_(slots), slot_(protocol::slot_of(load_epoch(slots.box))) {}

  MOETAIL_DEVICE int batch() const { return slots_.batch; }
  /// Lines of 8 columns in a routed row, and in a row of the shared partial.
  MOETAIL_DEVICE int lines() const { return protocol::lines_of(slots_.box.layout.shape.latent); }
  MOETAIL_DEVICE int shared_lines() const { return protocol::lines_of(slots_.box.layout.shape.hidden); }

  /// Route `k` of `token` counts, with this weight; a NaN stays one. Its row is then waited for.
  MOETAIL_DEVICE void put_weight(int token, int k, float weight) const {
    store_weight(token, k, protocol::weight_word(__float_as_uint(weight)));
  }
  /// Route `k` of `token` is skipped, and its row is not waited for.
  MOETAIL_DEVICE void drop(int token, int k) const { store_weight(token, k, protocol::kDroppedRoute); }
  /// Columns [8 * line, 8 * line + 8) of the row of route `k` of `token`.
  MOETAIL_DEVICE void put_line(int token, int k, int line, const Line& columns) const {
    if (!is_in(token)) return;
    Line* row = slots_.box.mine<Line>(Region::rows, slot_, 0, token) + static_cast<u64>(k) * lines();
    store_relaxed_sys(row + line, protocol::cleaned(columns));
  }
  /// Columns [8 * line, 8 * line + 8) of the shared partial of `token`.
  MOETAIL_DEVICE void put_shared_line(int token, int line, const Line& columns) const {
    if (!is_in(token)) return;
    store_relaxed_sys(slots_.box.mine<Line>(Region::polled_shared, slot_, 0, token) + line,
                      protocol::cleaned(columns));
  }
  /// A whole route: weight and row [L], 16-byte aligned.
  MOETAIL_DEVICE void put_route(int token, int k, const u16* row, float weight, Threads threads) const {
    if (threads.index == 0) put_weight(token, k, weight);
    for (int line = threads.index; line < lines(); line += threads.count)
      put_line(token, k, line, load_weak(reinterpret_cast<const Line*>(row) + line));
  }
  /// A whole row [H] of the shared partial, 16-byte aligned.
  MOETAIL_DEVICE void put_shared(int token, const u16* row, Threads threads) const {
    for (int line = threads.index; line < shared_lines(); line += threads.count)
      put_shared_line(token, line, load_weak(reinterpret_cast<const Line*>(row) + line));
  }

 private:
  // Beyond the batch nobody would re-arm what is filled.
  MOETAIL_DEVICE bool is_in(int token) const { return token >= 0 && token < slots_.batch; }
  MOETAIL_DEVICE void store_weight(int token, int k, u32 word) const {
    if (is_in(token)) store_relaxed_sys(slots_.box.mine<u32>(Region::weights, slot_, 0, token) + k, word);
  }

  const PollSlots& slots_;
  int slot_;
};

}  // namespace moetail::device
