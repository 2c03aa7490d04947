// SPDX-License-Identifier: Apache-2.0
// Where everything lies in a box. One table of regions gives sizes, offsets, the re-arm, `moetail info` and
// the documentation.
#pragma once

#include "protocol/safeguards.hpp"
#include "protocol/shape.hpp"

namespace moetail::protocol {

enum class Region : int {
  latent,
  shared,
  out,
  recv,
  gather,
  reduced,
  rows,
  weights,
  polled_shared,
  header,
  control
};
inline constexpr int kRegions = 11;

/// How many rows a slot of a region has for each source.
enum class RowCount : int { capacity, poll_capacity, one };
/// How many elements a row has.
enum class RowLength : int { latent, hidden, shard, chunk, routes_latent, routes, one, control };

struct RegionSpec {
  Region region;
  const char* name;
  const char* element;
  int element_bytes;
  bool per_slot;    ///< three rotating copies, or one
  bool per_source;  ///< one mailbox a source rank, or one
  RowCount rows;
  RowLength length;
  const char* writer;
  const char* reader;
};

struct RegionTable {
  RegionSpec specs[kRegions];

  MOETAIL_FN constexpr const RegionSpec* begin() const { return specs; }
  MOETAIL_FN constexpr const RegionSpec* end() const { return specs + kRegions; }
};

// A function, because device code may not index a constant of namespace scope.
MOETAIL_FN constexpr RegionTable region_table() {
  return {{{Region::latent, "latent", "bf16", 2, true, true, RowCount::capacity, RowLength::latent,
            "every rank: its partial, to every rank", "tail"},
           {Region::shared, "shared", "bf16", 2, true, true, RowCount::capacity, RowLength::shard,
            "every rank: the reader's columns of its shared partial", "tail"},
           {Region::out, "out", "bf16", 2, false, false, RowCount::capacity, RowLength::hidden,
            "every rank: its columns, to every rank", "consumer, which re-arms it"},
           {Region::recv, "recv", "bf16", 2, true, true, RowCount::capacity, RowLength::chunk,
            "every rank: the reader's chunk of its partial", "two-shot owner stage"},
           {Region::gather, "gather", "bf16", 2, true, false, RowCount::capacity, RowLength::latent,
            "every rank: the sum of its chunk, to every rank", "tail"},
           {Region::reduced, "reduced", "fp32", 4, true, false, RowCount::capacity, RowLength::latent,
            "this rank's tail: each row summed once",
            "the tail's other clusters; on a common copy, every rank's"},
           {Region::rows, "rows (G)", "bf16", 2, true, false, RowCount::poll_capacity,
            RowLength::routes_latent, "this rank's experts", "front_poll"},
           {Region::weights, "weights (W)", "fp32", 4, true, false, RowCount::poll_capacity,
            RowLength::routes, "this rank's router", "front_poll"},
           {Region::polled_shared, "polled shared (S)", "bf16", 2, true, false, RowCount::poll_capacity,
            RowLength::hidden, "this rank's shared experts", "front_poll"},
           {Region::header, "header", "u64", 8, true, true, RowCount::one, RowLength::one,
            "every rank: what it runs, to every rank", "tail, compared"},
           {Region::control, "control", "u64", 8, false, false, RowCount::one, RowLength::control,
            "this rank; poison by peers too", "every wait"}}};
}

inline constexpr RegionTable kRegionTable = region_table();

MOETAIL_FN constexpr RegionSpec spec_of(Region region) {
  constexpr RegionTable table = region_table();
  return table.specs[static_cast<int>(region)];
}

// The table is only right if it is in the order of the enum.
MOETAIL_FN constexpr bool table_is_in_order() {
  for (int i = 0; i < kRegions; ++i)
    if (static_cast<int>(kRegionTable.specs[i].region) != i) return false;
  return true;
}
static_assert(table_is_in_order());

/// The control words. The first four, which every launch begins with, lie side by side, so that one load of 32 bytes fetches
/// them; the others have a cache line each: they are polled by different threads than those that write them.
enum class Control : int {
  epoch,        ///< calls served; its slot is epoch mod 3. Advanced by the last cluster of a tail
  poison,       ///< 0, or 1 + the rank that faulted first, as far as this rank knows
  record_even,  ///< what the calls of even epochs dirtied
  record_odd,   ///< what the calls of odd epochs dirtied
  arrivals,     ///< clusters of the running tail that are done
  bell,         ///< CPU engine: counts publications for a parked reader, a hint and never part of the data
  bell_target,  ///< CPU engine: the count at which the parked reader wants to be woken
};
inline constexpr int kControlWords = 7;
inline constexpr int kControlWordsTogether = 4;
inline constexpr int kControlLines = 1 + kControlWords - kControlWordsTogether;
inline constexpr u64 kControlStrideBytes = 128;
inline constexpr u64 kRegionAlignment = 128;

/// Offsets of one shape, in bytes from the start of the box; the same on every rank.
struct Layout {
  Shape shape;
  u64 offset[kRegions] = {};
  u64 row_bytes[kRegions] = {};     ///< of one row
  u64 source_bytes[kRegions] = {};  ///< of one source's mailbox in one slot
  u64 slot_bytes[kRegions] = {};    ///< of one slot
  u64 region_bytes[kRegions] = {};
  u64 total_bytes = 0;

  MOETAIL_FN constexpr u64 at(Region region, int slot, int source, int row) const {
    const int i = static_cast<int>(region);
    return offset[i] + static_cast<u64>(slot) * slot_bytes[i] + static_cast<u64>(source) * source_bytes[i] +
           static_cast<u64>(row) * row_bytes[i];
  }
  MOETAIL_FN constexpr u64 control_at(Control word) const {
    const int i = static_cast<int>(word);
    const u64 within = i < kControlWordsTogether
                           ? static_cast<u64>(i) * 8
                           : static_cast<u64>(1 + i - kControlWordsTogether) * kControlStrideBytes;
    return offset[static_cast<int>(Region::control)] + within;
  }
};

MOETAIL_FN constexpr u64 row_elements(const Shape& shape, RowLength length) {
  switch (length) {
    case RowLength::latent: return static_cast<u64>(shape.latent);
    case RowLength::hidden: return static_cast<u64>(shape.hidden);
    case RowLength::shard: return static_cast<u64>(shape.shard());
    case RowLength::chunk: return allows_twoshot(shape) ? static_cast<u64>(shape.chunk()) : 0;
    case RowLength::routes_latent: return static_cast<u64>(shape.top_k) * static_cast<u64>(shape.latent);
    case RowLength::routes: return static_cast<u64>(shape.top_k);
    case RowLength::one: return 1;
    case RowLength::control: return kControlLines * kControlStrideBytes / 8;
  }
  return 0;
}

MOETAIL_FN constexpr u64 row_count(const Shape& shape, RowCount rows) {
  switch (rows) {
    case RowCount::capacity: return static_cast<u64>(shape.capacity);
    case RowCount::poll_capacity: return static_cast<u64>(shape.poll_capacity);
    case RowCount::one: return 1;
  }
  return 0;
}

/// The layout of a shape that breaks no rule. A shape that two-shot mode cannot serve has no `recv` and no
/// `gather`.
MOETAIL_FN constexpr Layout make_layout(const Shape& shape) {
  Layout layout;
  layout.shape = shape;
  u64 end = 0;
  for (int i = 0; i < kRegions; ++i) {
    const RegionSpec spec = spec_of(static_cast<Region>(i));
    const bool absent = spec.region == Region::gather && !allows_twoshot(shape);
    layout.row_bytes[i] =
        absent ? 0 : row_elements(shape, spec.length) * static_cast<u64>(spec.element_bytes);
    layout.source_bytes[i] = layout.row_bytes[i] * row_count(shape, spec.rows);
    layout.slot_bytes[i] = layout.source_bytes[i] * static_cast<u64>(spec.per_source ? shape.ranks : 1);
    layout.region_bytes[i] = layout.slot_bytes[i] * static_cast<u64>(spec.per_slot ? kSlots : 1);
    layout.offset[i] = end;
    end += (layout.region_bytes[i] + kRegionAlignment - 1) / kRegionAlignment * kRegionAlignment;
  }
  layout.total_bytes = end;
  return layout;
}

}  // namespace moetail::protocol
