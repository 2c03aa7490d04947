// SPDX-License-Identifier: Apache-2.0
// A user's kernel publishes its rank's finalized partial (moetail/device/publish.cuh).
#pragma once

#include "device/box.hpp"
#include "device/pack.hpp"

namespace moetail::device {

/// Puts rows of this rank's partial [B, L] where the call's mode wants them: into every rank's latent mailbox, or each column chunk into
/// its owner's. The sentinel word is cleaned on the way. Every column of every token of the batch is published exactly once, by any
/// threads in any order; a token outside the batch is left out, since nobody would re-arm its row.
class Publisher {
 public:
  /// Reads the epoch, so: after the consumer of the previous call in stream order, and in a dependent launch after
  /// griddepcontrol.wait (wait_for_predecessor).
  MOETAIL_DEVICE explicit Publisher(const PublishTargets& targets)
      : targets_(targets), slot_(protocol::slot_of(load_epoch(targets.box))) {}

  MOETAIL_DEVICE int batch() const { return targets_.batch; }
  /// Lines of 8 columns in a row.
  MOETAIL_DEVICE int lines() const { return protocol::lines_of(targets_.box.layout.shape.latent); }

  /// Columns [8 * line, 8 * line + 8) of `token`, as bf16. The widest and best store.
  MOETAIL_DEVICE void put_line(int token, int line, const Line& columns) const {
    put(token, line * protocol::kLineBytes, protocol::cleaned(columns));
  }
  /// The same from fp32, rounded as the numeric contract rounds: to nearest even, every NaN 0x7FFF.
  MOETAIL_DEVICE void put_line(int token, int line, const Columns& columns) const {
    put_line(token, line, pack_line(columns));
  }
  /// Columns 2 * pair and 2 * pair + 1 of `token`, the lower one in the low half: for epilogues whose lanes hold no whole line.
  MOETAIL_DEVICE void put_pair(int token, int pair, u32 columns) const {
    put(token, pair * static_cast<int>(sizeof(u32)), protocol::cleaned(columns));
  }
  /// A whole row [L], 16-byte aligned, that this launch or an earlier one has finished.
  MOETAIL_DEVICE void put_row(int token, const u16* row, Threads threads) const {
    for (int line = threads.index; line < lines(); line += threads.count)
      put_line(token, line, load_weak(reinterpret_cast<const Line*>(row) + line));
  }

 private:
  template <class Piece>
  MOETAIL_DEVICE void put(int token, int bytes_in_row, const Piece& piece) const {
    const BoxView& box = targets_.box;
    if (token < 0 || token >= targets_.batch) return;
    if (!targets_.twoshot) {
      put_everywhere(box, targets_.link,
                     box.layout.at(Region::latent, slot_, box.rank, token) + static_cast<u64>(bytes_in_row),
                     piece);
      return;
    }
    const int chunk_bytes = static_cast<int>(box.layout.row_bytes[static_cast<int>(Region::recv)]);
    u8* to = box.at<u8>(bytes_in_row / chunk_bytes, Region::recv, slot_, box.rank, token);
    store_relaxed_sys(reinterpret_cast<Piece*>(to + bytes_in_row % chunk_bytes), piece);
  }

  const PublishTargets& targets_;
  int slot_;
};

}  // namespace moetail::device
