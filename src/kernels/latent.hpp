// SPDX-License-Identifier: Apache-2.0
// This rank's partial: K expert rows summed in the contract's grouping, rounded once, put into every rank's mailbox. Blocks of a
// K slice share its lines; four lanes work on one line of 8 columns, a run of routes each.
#pragma once

#include "kernels/team.hpp"
#include "protocol/numerics.hpp"

namespace moetail::kernels {

// Routes that a lane has in flight: 4 lines of 16 bytes cover K = 16 in one trip to memory. One route a lane and 16 lanes was
// slower (H200 probe).
inline constexpr i32 kRunRoutes = (kShape.top_k + protocol::kFinalizeGroups - 1) / protocol::kFinalizeGroups;
inline constexpr i32 kRoutesInFlight = kRunRoutes < 4 ? kRunRoutes : 4;
inline constexpr i32 kRunLoads = (kRunRoutes + kRoutesInFlight - 1) / kRoutesInFlight;
// Weights, and map entries, of a load lie in one aligned vector.
inline constexpr bool kRoutesAreVectors = kShape.top_k % 16 == 0;

// Every route of every load is there: no predicates.
inline constexpr bool kRoutesAreDense = kForm == Form::expanded && kShape.top_k % 16 == 0;

struct Routes {
  Line row[kRoutesInFlight];
  // As loaded: a conversion would wait for the load, and with it everything behind, the control words' loads first.
  Line raw_weights;
  bool is_on[kRoutesInFlight];
};

/// Equal parts of n things; the first n % parts have one more. 32 bits and `parts` a constant: no division is left of it.
struct Part {
  u32 begin, end;
};
MOETAIL_DEVICE Part part_of(u32 n, u32 part, u32 parts) {
  const u32 each = n / parts, more = n % parts;
  const u32 begin = part * each + (part < more ? part : more);
  return {begin, begin + each + (part < more ? 1 : 0)};
}

MOETAIL_COLD void raise_map_fault(const Tail tail, i32 token, i32 k, i32 index) {
  const RankArgs& args = tail.args;
  Spot spot{Site::latent_publish, args.rank, token, k};
  spot.expected = static_cast<u64>(args.call.num_rows);
  spot.seen = static_cast<u64>(index);
  // A tail's side warp loads the control words, and finalizes nothing. Other launches end before the epoch does.
  if constexpr (kPublishes) device::wait_barrier(tail.control_barrier(), 0);
  const u64 epoch = kPublishes ? tail.epoch() : device::load_relaxed_sys(tail.view.control<Control::epoch>());
  raise_fault(args, epoch, FaultKind::map_index, spot, 0);
}

/// Four weights of one aligned vector, or one of its own in word `j`, as loaded.
MOETAIL_DEVICE void load_weights(const CallInputs& call, i32 route, Line& raw) {
  if constexpr (kWeightsAreFp32) {
    raw = device::load_weak(reinterpret_cast<const Line*>(static_cast<const float*>(call.weights) + route));
  } else {
    const u64 four =
        device::load_weak(reinterpret_cast<const u64*>(static_cast<const u16*>(call.weights) + route));
    raw.word[0] = static_cast<u32>(four);
    raw.word[1] = static_cast<u32>(four >> 32);
  }
}
MOETAIL_DEVICE void load_weight(const CallInputs& call, i32 route, int j, Line& raw) {
  if constexpr (kWeightsAreFp32)
    raw.word[j] = device::load_weak(static_cast<const u32*>(call.weights) + route);
  else
    raw.word[j] = device::load_weak(static_cast<const u16*>(call.weights) + route);
}

MOETAIL_DEVICE float weight_of(const Routes& routes, int j) {
  if constexpr (kWeightsAreFp32 || kPollsSlots) return __uint_as_float(routes.raw_weights.word[j]);
  if constexpr (!kRoutesAreVectors) return __uint_as_float(routes.raw_weights.word[j] << 16);
  const u32 pair = routes.raw_weights.word[j / 2];
  return j % 2 == 0 ? device::low_float(pair) : device::high_float(pair);
}

/// Four routes that are surely there, with nothing to ask: no branch stands between their loads.
MOETAIL_DEVICE void load_dense(const CallInputs& call, i32 token, i32 line, i32 first, Routes& routes) {
  const u32 route = static_cast<u32>(token * kShape.top_k + first);
  load_weights(call, static_cast<i32>(route), routes.raw_weights);
  const Line* row = reinterpret_cast<const Line*>(call.rows) + static_cast<u64>(route) * kLatentLines + line;
#pragma unroll
  for (int j = 0; j < kRoutesInFlight; ++j) routes.row[j] = device::load_weak(row + j * kLatentLines);
}

/// The routes [first, first + in flight) of `token`, `line` of each row, those below `end`. False after a map index beyond the
/// rows, which is not dereferenced.
MOETAIL_DEVICE bool load_routes(const Tail& tail, i32 token, i32 line, i32 first, i32 end, Routes& routes) {
  const CallInputs& call = tail.args.call;
  const i32 base = token * kShape.top_k;
  bool fine = true;
  Line entries{};
  if constexpr (kRoutesAreVectors) load_weights(call, base + first, routes.raw_weights);
  if constexpr (kForm == Form::permuted && kRoutesAreVectors)
    entries = device::load_weak(reinterpret_cast<const Line*>(call.map + base + first));
#pragma unroll
  for (int j = 0; j < kRoutesInFlight; ++j) {
    const i32 k = first + j;
    routes.is_on[j] = kRoutesAreDense || k < end;
    i32 row = base + k;
    if constexpr (kForm == Form::permuted) {
      if constexpr (kRoutesAreVectors) {
        row = static_cast<i32>(entries.word[j]);
      } else if (routes.is_on[j]) {
        row = static_cast<i32>(device::load_weak(reinterpret_cast<const u32*>(call.map + base + k)));
      }
      if (routes.is_on[j] && row >= call.num_rows) {
        raise_map_fault(tail, token, k, row);
        fine = false;
      }
      routes.is_on[j] = routes.is_on[j] && row >= 0 && row < call.num_rows;
    }
    if (!routes.is_on[j]) continue;
    if constexpr (!kRoutesAreVectors) load_weight(call, base + k, j, routes.raw_weights);
    routes.row[j] = device::load_weak(
        reinterpret_cast<const Line*>(call.rows + static_cast<u64>(row) * kShape.latent) + line);
  }
  return fine;
}

/// The same out of the polled slots: a row is waited for once its weight has come, a dropped route's not at all.
MOETAIL_DEVICE bool poll_routes(const Tail& tail, i32 token, i32 line, i32 first, i32 end, Routes& routes) {
  stall<Site::rows_poll>(tail.args, tail.block());
  const u32* weights = tail.view.mine<u32, Region::weights>(tail.slot, 0, token);
  const Line* rows = tail.view.mine<Line, Region::rows>(tail.slot, 0, token);
  Waiter waiter = tail.waiter();
  Spot spot{Site::rows_poll, tail.args.rank, token, first};
  u32 word[kRoutesInFlight];
  const auto is_in = [&](int j) { return kRoutesAreVectors || first + j < end; };
  return protocol::wait_until(waiter, spot, [&](Spot& where) {
    int missing = 0;
#pragma unroll
    for (int j = 0; j < kRoutesInFlight; ++j)
      word[j] = is_in(j) ? device::load_relaxed_sys(weights + first + j) : protocol::kDroppedRoute;
#pragma unroll
    for (int j = 0; j < kRoutesInFlight; ++j)
      routes.row[j] = is_in(j)
                          ? device::load_relaxed_sys(rows + static_cast<u64>(first + j) * kLatentLines + line)
                          : Line{};
#pragma unroll
    for (int j = 0; j < kRoutesInFlight; ++j) {
      routes.is_on[j] = word[j] != protocol::kDroppedRoute;
      routes.raw_weights.word[j] = word[j];
      if (protocol::is_empty(word[j]) || (routes.is_on[j] && protocol::has_empty(routes.row[j]))) {
        if (missing++ == 0) where.k = first + j;
      }
    }
    return missing;
  });
}

MOETAIL_DEVICE void add_routes(device::Columns& sum, const Routes& routes) {
#pragma unroll
  for (int j = 0; j < kRoutesInFlight; ++j) {
    if (!kRoutesAreDense && !routes.is_on[j]) continue;
    const device::Columns row = device::columns_of(routes.row[j]);
    const float weight = weight_of(routes, j);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum.value[i] = __fmaf_rn(weight, row.value[i], sum.value[i]);
  }
}

/// (g0 + g2) + (g1 + g3) for eight columns over the four lanes of a line. Lane g keeps columns 2g and 2g + 1, rounded.
MOETAIL_DEVICE u32 join_runs(const device::Columns& sum, i32 group) {
  float half[4], pair[2];
  const bool upper = (group & 2) != 0, odd = (group & 1) != 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float received = __shfl_xor_sync(~0u, upper ? sum.value[i] : sum.value[i + 4], 2);
    half[i] = __fadd_rn(upper ? sum.value[i + 4] : sum.value[i], received);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float received = __shfl_xor_sync(~0u, odd ? half[i] : half[i + 2], 1);
    pair[i] = __fadd_rn(odd ? half[i + 2] : half[i], received);
  }
  return device::pack_bf16(pair[0], pair[1]);
}

/// Where word `word` of line `line` of this rank's partial belongs: every rank's latent mailbox, or the two-shot owner's recv.
template <class Piece>
MOETAIL_DEVICE void put_partial(const Tail& tail, i32 token, i32 line, i32 word, const Piece& piece) {
  const u64 within = static_cast<u64>(word) * 4;
  if constexpr (kMode == Mode::twoshot) {
    constexpr i32 kChunkLines = kLatentLines / kRanks;
    const i32 owner = line / kChunkLines;
    device::store_relaxed_sys(
        tail.view.at<Piece>(owner, place<Region::recv>(tail.slot, tail.args.rank, token) +
                                       static_cast<u64>(line % kChunkLines) * protocol::kLineBytes + within),
        piece);
  } else {
    put(tail.view,
        place<Region::latent>(tail.slot, tail.args.rank, token) +
            static_cast<u64>(line) * protocol::kLineBytes + within,
        piece);
  }
}

/// A part of this rank's partial: of `lines` lines a token, from `first_line` on, the items of `part` (item = token * lines + line).
struct Share {
  i32 first_line;
  u32 lines;
  Part part;
};

/// Routes of one load of a lane's run. False after a fault.
MOETAIL_DEVICE bool fetch_routes(const Tail& tail, i32 token, i32 line, i32 first, i32 end, Routes& routes) {
  if constexpr (kPollsSlots) return poll_routes(tail, token, line, first, end, routes);
  if constexpr (kRoutesAreDense) {
    load_dense(tail.args.call, token, line, first, routes);
    return true;
  }
  return load_routes(tail, token, line, first, end, routes);
}

/// A lane's part in an item of finalize.
struct Item {
  i32 token, line;
  bool is_on;  ///< a lane without an item takes the share's first once more and keeps the result to itself
  bool fine = true;
  device::Columns sum{};
};

MOETAIL_DEVICE Item item_of(const Share& share, u32 wanted) {
  const bool is_on = wanted < share.part.end;
  const u32 item = is_on ? wanted : share.part.begin;
  return {static_cast<i32>(item / share.lines), share.first_line + static_cast<i32>(item % share.lines),
          is_on};
}

/// A lane's sum joined with those of the three others of its item, and put. All lanes of the warp are here.
MOETAIL_DEVICE void publish_item(const Tail& tail, Item& item, i32 group, bool alive) {
  if (!kRoutesAreDense && item.is_on && alive && !item.fine) tail.set_failed();
  const u32 word = join_runs(item.sum, group);
  // A line with a bad route is not published at all. All lanes vote: this must stand behind no condition of single lanes.
  if constexpr (kForm == Form::permuted || kPollsSlots)
    item.fine = (__ballot_sync(~0u, !item.fine) >> (tail.lane & ~3) & 0xFu) == 0;
  if (item.is_on && item.fine && alive)
    each_time<Stage::publication>([&] { put_partial(tail, item.token, item.line, group, word); });
}

/// One pass of finalize: eight items a warp from `base` on, and as often again `stride` further as a lane has in flight. With kReadsControl the
/// control words are loaded behind the rows and used before the first store. Returns whether this thread goes on.
template <bool kReadsControl, int kItemsInFlight>
MOETAIL_DEVICE bool finalize_items(Tail& tail, const Share& share, u32 base, u32 stride) {
  const i32 group = tail.lane % 4;
  const i32 run_begin = protocol::finalize_group_begin(group, kShape.top_k);
  const i32 run_end = protocol::finalize_group_begin(group + 1, kShape.top_k);
  bool alive = true;
  if constexpr (kReadsControl && kPollsSlots) alive = use_control(tail, load_control(tail));
  Item items[kItemsInFlight];
#pragma unroll
  for (int i = 0; i < kItemsInFlight; ++i) {
    items[i] = item_of(share, base + i * stride + static_cast<u32>(tail.lane) / 4);
    items[i].fine = alive;
  }
#pragma unroll
  for (i32 load = 0; load < kRunLoads; ++load) {
    Routes routes[kItemsInFlight];
#pragma unroll
    for (int i = 0; i < kItemsInFlight; ++i)
      if (kRoutesAreDense || items[i].fine)
        each_time<Stage::rows>([&] {
          items[i].fine = fetch_routes(tail, items[i].token, items[i].line,
                                       run_begin + load * kRoutesInFlight, run_end, routes[i]);
        });
    if constexpr (kReadsControl && !kPollsSlots)
      if (load == 0) alive = use_control(tail, load_control(tail));
#pragma unroll
    for (int i = 0; i < kItemsInFlight; ++i)
      if (kRoutesAreDense || items[i].fine) add_routes(items[i].sum, routes[i]);
  }
#pragma unroll
  for (int i = 0; i < kItemsInFlight; ++i) publish_item(tail, items[i], group, alive);
  return alive;
}

/// The same where the partial comes finalized: a line a lane, cleaned of the sentinel.
template <bool kReadsControl>
MOETAIL_DEVICE bool copy_items(Tail& tail, const Share& share, u32 base) {
  const u32 item = base + static_cast<u32>(tail.lane);
  const bool on = item < share.part.end;
  const i32 token = on ? static_cast<i32>(item / share.lines) : 0;
  const i32 line = share.first_line + (on ? static_cast<i32>(item % share.lines) : 0);
  Line given{};
  if (on)
    given = device::load_weak(reinterpret_cast<const Line*>(tail.args.call.partial) +
                              static_cast<u64>(token) * kLatentLines + line);
  const bool alive = !kReadsControl || use_control(tail, load_control(tail));
  if (on && alive) put_partial(tail, token, line, 0, protocol::cleaned(given));
  return alive;
}

template <bool kReadsControl, int kItemsInFlight>
MOETAIL_DEVICE bool publish_items(Tail& tail, const Share& share, u32 base, u32 stride) {
  stall<kMode == Mode::twoshot ? Site::twoshot_push : Site::latent_publish>(tail.args, tail.block());
  if constexpr (kForm == Form::partial) return copy_items<kReadsControl>(tail, share, base);
  return finalize_items<kReadsControl, kItemsInFlight>(tail, share, base, stride);
}

/// Items that a warp takes at a time, and that a lane has in flight where `items` are `warps` warps': each further pass is a trip to memory.
inline constexpr i32 kWarpItems = kForm == Form::partial ? 32 : 8;
constexpr i32 items_in_flight(i32 items, i32 warps) {
  return kForm != Form::partial && !kPollsSlots && items > warps * kWarpItems ? 2 : 1;
}

/// Reads the control words and publishes a share with `kWarps` warps of the block. Returns whether this thread goes on. kMost: items of the
/// largest share.
template <i32 kWarps, i32 kMost>
MOETAIL_DEVICE bool publish_share(Tail& tail, const Share& share) {
  constexpr i32 kInFlight = items_in_flight(kMost, kWarps);
  constexpr u32 kStride = kWarps * kWarpItems, kPass = kStride * kInFlight;
  u32 base = share.part.begin + static_cast<u32>(tail.warp * kWarpItems);
  if (tail.warp >= kWarps || base >= share.part.end) return use_control(tail, load_control(tail));
  bool alive = publish_items<true, kInFlight>(tail, share, base, kStride);
  if constexpr (kMost > static_cast<i32>(kPass))
    for (base += kPass; alive && base < share.part.end; base += kPass)
      alive = publish_items<false, kInFlight>(tail, share, base, kStride);
  return alive;
}

/// The tail's own publication: this block's share of its K slice's lines.
MOETAIL_DEVICE bool publish_latents(Tail& tail) {
  const u32 lines = static_cast<u32>(tail.slice_lines());
  constexpr i32 kMost = (kMaxBatch * kCut.slice_lines + kGeometry.clusters - 1) / kGeometry.clusters;
  const Part part =
      part_of(static_cast<u32>(tail.batch) * lines, static_cast<u32>(tail.cluster), kGeometry.clusters);
  return publish_share<kComputeWarps, kMost>(tail, {tail.slice_begin(), lines, part});
}

}  // namespace moetail::kernels
