// SPDX-License-Identifier: Apache-2.0
// protocol::BoxView for a kernel: the same places, with the layout as compile-time constants and the pointers read out of the
// launch's argument, so that nothing is copied to local memory.
#pragma once

#include "device/annotate.hpp"
#include "device/global.hpp"
#include "kernels/config.hpp"

namespace moetail::kernels {

using device::Line;
using protocol::Control;
using protocol::Region;

// Scalars, one by one: device code may use the value of a constant of namespace scope, but not index into one.
template <Region kRegion>
inline constexpr u64 kOffset = protocol::make_layout(kShape).offset[static_cast<int>(kRegion)];
template <Region kRegion>
inline constexpr u64 kRowBytes = protocol::make_layout(kShape).row_bytes[static_cast<int>(kRegion)];
template <Region kRegion>
inline constexpr u64 kSourceBytes = protocol::make_layout(kShape).source_bytes[static_cast<int>(kRegion)];
template <Region kRegion>
inline constexpr u64 kSlotBytes = protocol::make_layout(kShape).slot_bytes[static_cast<int>(kRegion)];
template <Control kWord>
inline constexpr u64 kControlOffset = protocol::make_layout(kShape).control_at(kWord);

template <Region kRegion>
MOETAIL_DEVICE u64 place(int slot, int source, int row) {
  return kOffset<kRegion> + static_cast<u64>(slot) * kSlotBytes<kRegion> +
         static_cast<u64>(source) * kSourceBytes<kRegion> + static_cast<u64>(row) * kRowBytes<kRegion>;
}

struct View {
  const RankArgs& args;
  u8* own;  ///< this rank's box: read out of the arguments once, since every phase begins with it

  MOETAIL_DEVICE explicit View(const RankArgs& rank_args)
      : args(rank_args), own(rank_args.peer[rank_args.rank]) {}

  template <class T>
  MOETAIL_DEVICE T* at(int peer, u64 place_bytes) const {
    return reinterpret_cast<T*>(args.peer[peer] + place_bytes);
  }
  template <class T, Region kRegion>
  MOETAIL_DEVICE T* mine(int slot, int source, int row) const {
    return reinterpret_cast<T*>(own + place<kRegion>(slot, source, row));
  }
  template <Control kWord>
  MOETAIL_DEVICE u64* control() const {
    return reinterpret_cast<u64*>(own + kControlOffset<kWord>);
  }
};

/// Puts a word or a line of something that every rank gets whole at `place_bytes` of every box. Polled by: the latent, gather and
/// output polls.
template <class Piece>
MOETAIL_DEVICE void put(const View& view, u64 place_bytes, const Piece& piece) {
  const RankArgs& args = view.args;
  if constexpr (kPut == Put::multicast) {
    device::store_multicast_relaxed_sys(reinterpret_cast<Piece*>(args.multicast + place_bytes), piece);
  } else if constexpr (kPut == Put::own) {
    device::store_relaxed_sys(reinterpret_cast<Piece*>(view.own + place_bytes), piece);
  } else {
#pragma unroll
    for (int i = 0; i < kRanks; ++i) {
      // Each rank begins with itself, so that the ranks do not all write to one peer at once.
      const int peer = (args.rank + i) % kRanks;
      device::store_relaxed_sys(reinterpret_cast<Piece*>(args.peer[peer] + place_bytes), piece);
    }
  }
}

}  // namespace moetail::kernels
