// SPDX-License-Identifier: Apache-2.0
// The mailbox state machines: publish, poll, re-arm, header, epoch. Written once over a memory policy; the
// CPU engine, the GPU kernels, the race detector and the explorer run this text.
//
// A memory policy `Mem` provides, besides what protocol/wait.hpp asks for:
//   load(const Line*), load(const u32*), load(const u64*)     ordered: a reader sees what its publisher saw (acquire)
//   store(Line*, Line), store(u32*, u32), store(u64*, u64)    ordered: a publication (release)
//   arm(Line*), arm(u32*)                                     the sentinel, relaxed: nobody waits for it
//   add(u64*, u64)                                            ordered read-modify-write, returns the old value
#pragma once

#include "protocol/header.hpp"
#include "protocol/layout.hpp"
#include "protocol/ring.hpp"
#include "protocol/sentinel.hpp"
#include "protocol/wait.hpp"

namespace moetail::protocol {

/// One rank's view of all mailboxes: plain pointers, passed by value to kernels. `peer[r]` is the start of
/// rank r's box.
struct BoxView {
  Layout layout;
  u8* peer[kMaxRanks] = {};
  u8* multicast = nullptr;  ///< one address whose stores reach every rank, or null
  /// Ordinary memory's multicast: one copy of what every rank gets whole (latent, gather, reduced), read by all of
  /// them; or null, where every rank has a copy of its own. docs/protocol.md, "One copy for all ranks".
  u8* common = nullptr;
  i32 rank = 0;

  MOETAIL_FN i32 ranks() const { return layout.shape.ranks; }

  MOETAIL_FN bool is_common(Region region) const {
    return common != nullptr &&
           (region == Region::latent || region == Region::gather || region == Region::reduced);
  }

  template <class T>
  MOETAIL_FN T* at(i32 peer_rank, Region region, int slot, int source, int row) const {
    u8* base = is_common(region) ? common : peer[peer_rank];
    return reinterpret_cast<T*>(base + layout.at(region, slot, source, row));
  }
  template <class T>
  MOETAIL_FN T* mine(Region region, int slot, int source, int row) const {
    return at<T>(rank, region, slot, source, row);
  }
  MOETAIL_FN u64* control(Control word) const { return control_of(rank, word); }
  MOETAIL_FN u64* control_of(i32 peer_rank, Control word) const {
    return reinterpret_cast<u64*>(peer[peer_rank] + layout.control_at(word));
  }
};

MOETAIL_FN constexpr int lines_of(i32 bf16_columns) {
  return bf16_columns / kLineColumns;
}

// --- publish ---------------------------------------------------------------------------------------------

/// Stores `lines` lines that hold no sentinel word, because rounding made them or clean_run went over them.
template <class Mem>
MOETAIL_FN void store_run(Mem& mem, Line* to, const Line* from, int lines) {
  for (int i = 0; i < lines; ++i) mem.store(to + i, from[i]);
}

/// Stores lines of foreign data, without the sentinel word.
template <class Mem>
MOETAIL_FN void store_cleaned_run(Mem& mem, Line* to, const Line* from, int lines) {
  for (int i = 0; i < lines; ++i) mem.store(to + i, cleaned(from[i]));
}

/// Takes the sentinel word out of foreign data on its way into a mailbox.
MOETAIL_FN void clean_run(Line* to, const Line* from, int lines) {
  for (int i = 0; i < lines; ++i) to[i] = cleaned(from[i]);
}

/// Part of a row to every rank's mailbox. Polled by: poll_run, on every rank. `first_line`: where in the row
/// it belongs.
template <class Mem>
MOETAIL_FN void put_run(Mem& mem, const BoxView& view, Region region, int slot, int source, int row,
                        int first_line, const Line* from, int lines) {
  const i32 copies = view.is_common(region) ? 1 : view.ranks();
  for (i32 i = 0; i < copies; ++i) {
    // Each rank begins with itself, so that the ranks do not all write to one peer at once.
    const i32 peer = (view.rank + i) % view.ranks();
    store_run(mem, view.at<Line>(peer, region, slot, source, row) + first_line, from, lines);
  }
}

// --- poll ------------------------------------------------------------------------------------------------

// What has arrived stays as it is until this rank's own next call lets its writer go on, so a reader with ordinary memory
// looks at every line once and then uses it where it lies.

/// How many lines of a run are there: `done`, which are known to be, and those behind them up to the first that is not.
/// Local memory only: remote memory is never read.
template <class Mem>
MOETAIL_FN i64 poll_run(Mem& mem, const Line* from, i64 done, i64 lines) {
  while (done < lines && !has_empty(mem.load(from + done))) ++done;
  return done;
}

/// Waits until lines [begin, end) of a run have arrived. False after a fault.
template <class Mem>
MOETAIL_FN bool wait_run(Mem& mem, Spot& spot, const Line* from, int begin, int end) {
  i64 done = begin;
  return wait_until(mem, spot, [&](Spot&) {
    done = poll_run(mem, from, done, end);
    return done == end ? 0 : 1;
  });
}

/// Runs that arrive from several peers; `done[i]` lines of run i are known to be there, and `lines[i]` are wanted.
struct Runs {
  const Line* from[kMaxRanks] = {};
  i64 done[kMaxRanks] = {};
  i64 lines[kMaxRanks] = {};
  int count = 0;

  /// As many lines of every run.
  MOETAIL_FN void want(i64 lines_of_each) {
    for (int i = 0; i < count; ++i) lines[i] = lines_of_each;
  }
};

/// Waits until the wanted lines of every run have arrived; run i comes from peer i. False after a fault.
template <class Mem>
MOETAIL_FN bool wait_runs(Mem& mem, Spot& spot, Runs& runs) {
  return wait_until(mem, spot, [&](Spot& where) {
    int missing = 0;
    for (int i = 0; i < runs.count; ++i) {
      if (runs.done[i] >= runs.lines[i]) continue;
      runs.done[i] = poll_run(mem, runs.from[i], runs.done[i], runs.lines[i]);
      if (runs.done[i] == runs.lines[i]) continue;
      if (missing++ == 0) where.peer = i;
    }
    return missing;
  });
}

// --- re-arm ----------------------------------------------------------------------------------------------

struct Range {
  u64 begin, end;
};

/// Part `part` of `parts` equal parts of n things.
MOETAIL_FN constexpr Range part_of(u64 n, int part, int parts) {
  return Range{n * static_cast<u64>(part) / static_cast<u64>(parts),
               n * static_cast<u64>(part + 1) / static_cast<u64>(parts)};
}

/// What cluster `part` of `parts` of rank `rank` sums where rows are shared: lines of the batch's latent rows, one row
/// after the other. Alone on its copy, a rank's clusters divide the rows among themselves; on a common copy those of all ranks do.
MOETAIL_FN Range shared_sum_part(const BoxView& view, i32 rank, int batch, int part, int parts) {
  const u64 lines = static_cast<u64>(batch) * static_cast<u64>(lines_of(view.layout.shape.latent));
  if (!view.is_common(Region::reduced)) return part_of(lines, part, parts);
  return part_of(lines, rank * parts + part, view.ranks() * parts);
}

template <class Mem>
MOETAIL_FN void arm_lines(Mem& mem, Line* to, Range range) {
  for (u64 i = range.begin; i < range.end; ++i) mem.arm(to + i);
}

template <class Mem>
MOETAIL_FN void arm_words(Mem& mem, u32* to, Range range) {
  for (u64 i = range.begin; i < range.end; ++i) mem.arm(to + i);
}

/// One cluster's part of filling the previous call's slot with the sentinel: exactly the rows and regions
/// that its record names. These stores need no order within the launch: the next publication into this slot
/// comes two calls later (docs/protocol.md, "Three slots").
template <class Mem>
MOETAIL_FN void rearm_previous(Mem& mem, const BoxView& view, u64 epoch, const Record& record, int part,
                               int parts) {
  const int slot = rearm_slot_of(epoch);
  for (int i = 0; i < kRegions; ++i) {
    const RegionSpec spec = spec_of(static_cast<Region>(i));
    if ((record.regions & region_bit(spec.region)) == 0) continue;
    const u64 rows = spec.rows == RowCount::one ? 1 : static_cast<u64>(record.batch);
    const u64 bytes = view.layout.row_bytes[i] * rows;
    // A common copy is re-armed once: by source, or each rank a part of it.
    const bool is_common = view.is_common(spec.region);
    const int first = is_common && spec.per_source ? view.rank : 0;
    const int sources = spec.per_source && !is_common ? view.ranks() : 1;
    const bool is_split = is_common && !spec.per_source;
    const int share = is_split ? view.rank * parts + part : part;
    const int shares = is_split ? view.ranks() * parts : parts;
    for (int source = first; source < first + sources; ++source) {
      // Rows of W and headers are not whole lines; all others are.
      if (spec.region == Region::weights || spec.region == Region::header)
        arm_words(mem, view.mine<u32>(spec.region, slot, source, 0), part_of(bytes / 4, share, shares));
      else
        arm_lines(mem, view.mine<Line>(spec.region, slot, source, 0),
                  part_of(bytes / kLineBytes, share, shares));
    }
  }
}

// --- header ----------------------------------------------------------------------------------------------

template <class Mem>
MOETAIL_FN void publish_header(Mem& mem, const BoxView& view, int slot, const Header& header) {
  const u64 word = pack_header(header);
  for (i32 i = 0; i < view.ranks(); ++i) {
    const i32 peer = (view.rank + i) % view.ranks();
    u32* to = view.at<u32>(peer, Region::header, slot, view.rank, 0);
    mem.store(to, static_cast<u32>(word));
    mem.store(to + 1, static_cast<u32>(word >> 32));
  }
}

/// Waits for every rank's header and compares it with this rank's own. False after a fault.
template <class Mem>
MOETAIL_FN bool check_headers(Mem& mem, const BoxView& view, int slot, const Header& mine) {
  Spot spot{Site::header_poll};
  for (i32 source = 0; source < view.ranks(); ++source) {
    const u32* from = view.mine<u32>(Region::header, slot, source, 0);
    u64 word = 0;
    spot.peer = source;
    const bool arrived = wait_until(mem, spot, [&](Spot&) {
      const u32 low = mem.load(from), high = mem.load(from + 1);
      word = static_cast<u64>(high) << 32 | low;
      return is_empty(low) || is_empty(high) ? 1 : 0;
    });
    if (!arrived) return false;
    if constexpr (!kComparesHeaders) continue;
    const Header theirs = unpack_header(word);
    spot.field = header_difference(mine, theirs);
    if (spot.field == HeaderField::none) continue;
    spot.expected = header_field_value(mine, spot.field);
    spot.seen = header_field_value(theirs, spot.field);
    mem.raise(FaultKind::header_mismatch, spot);
    return false;
  }
  return true;
}

// --- epoch and record ------------------------------------------------------------------------------------

/// What the re-arm of this call goes by: the previous call's record. The safeguard's control takes the
/// present call's size.
template <class Mem>
MOETAIL_FN Record record_to_rearm(Mem& mem, const BoxView& view, u64 epoch, const Record& present) {
  const Record previous = unpack_record(mem.load(view.control(previous_record_word(epoch))));
  if (kRearmsByRecord || previous.regions == 0) return previous;
  return Record{present.batch < previous.batch ? present.batch : previous.batch, previous.regions};
}

/// The end of a tail, once in each of its `clusters` clusters, after all that reads the epoch: the first one
/// leaves the record, which nobody reads before the next call, and the last one advances the epoch. Returns
/// true in that one.
template <class Mem>
MOETAIL_FN bool finish_call(Mem& mem, const BoxView& view, u64 epoch, const Record& present, int clusters) {
  const u64 arrived = mem.add(view.control(Control::arrivals), 1);
  const bool is_last = arrived + 1 == static_cast<u64>(clusters);
  if (arrived == 0) mem.store(view.control(record_word(epoch)), pack_record(present));
  if (is_last) mem.store(view.control(Control::arrivals), u64{0});
  if (kLastBlockAdvances ? is_last : arrived == 0)
    mem.store(view.control(Control::epoch), kAdvancesEpoch ? epoch + 1 : epoch);
  return is_last;
}

/// Fills a whole box with the sentinel and its control words with 0: set-up, and recovery after a fault.
template <class Mem>
MOETAIL_FN void arm_box(Mem& mem, const BoxView& view) {
  for (int i = 0; i < static_cast<int>(Region::control); ++i) {
    // The common copy is rank 0's to arm.
    const Region region = static_cast<Region>(i);
    if (view.is_common(region) && view.rank != 0) continue;
    arm_lines(mem, view.mine<Line>(region, 0, 0, 0),
              Range{0, (view.layout.region_bytes[i] + kLineBytes - 1) / kLineBytes});
  }
  for (int word = 0; word < kControlWords; ++word)
    mem.store(view.control(static_cast<Control>(word)), u64{0});
}

}  // namespace moetail::protocol
