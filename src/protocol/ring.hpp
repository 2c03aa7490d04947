// SPDX-License-Identifier: Apache-2.0
// The ring of slots: which slot a call uses, which one it re-arms, and the record that says what that one
// holds.
#pragma once

#include "protocol/layout.hpp"
#include "protocol/mode.hpp"

namespace moetail::protocol {

/// The slot of the call that finds `epoch` in its box. 2^64 is no multiple of 3 either, but is never reached.
MOETAIL_FN constexpr int slot_of(u64 epoch) {
  return static_cast<int>(epoch % kRingSlots);
}

/// The slot that this call re-arms: the previous call's. Never the next one's, where a faster peer may
/// already write.
MOETAIL_FN constexpr int rearm_slot_of(u64 epoch) {
  return static_cast<int>((epoch + (kRearmsPrevious ? kRingSlots - 1 : 1)) % kRingSlots);
}

/// What one call dirtied in its slot. Packed into one 64-bit control word; 0 is "nothing".
struct Record {
  i32 batch = 0;
  u32 regions = 0;  ///< bit i: Region i
};

MOETAIL_FN constexpr u32 region_bit(Region region) {
  return 1u << static_cast<int>(region);
}

MOETAIL_FN constexpr u64 pack_record(const Record& record) {
  return static_cast<u64>(record.regions) << 32 | static_cast<u32>(record.batch);
}
MOETAIL_FN constexpr Record unpack_record(u64 word) {
  return Record{static_cast<i32>(word & 0xFFFFFFFFu), static_cast<u32>(word >> 32)};
}

/// Two records alternate, because a call writes its own while other blocks of it still read the previous one.
MOETAIL_FN constexpr Control record_word(u64 epoch) {
  return epoch % 2 == 0 || !kAlternatesRecords ? Control::record_even : Control::record_odd;
}
MOETAIL_FN constexpr Control previous_record_word(u64 epoch) {
  return epoch % 2 == 0 && kAlternatesRecords ? Control::record_odd : Control::record_even;
}

/// The regions that a call of `mode` dirties on every rank. `shares`: publish mode with `reduced`.
/// `polls_slots`: front_poll whose routed input came through G and W; `polls_shared`: whose shared partial
/// came through S.
MOETAIL_FN constexpr u32 dirtied_regions(Mode mode, bool shares, bool polls_slots, bool polls_shared) {
  const u32 common = region_bit(Region::shared) | region_bit(Region::header);
  if (mode == Mode::twoshot) return common | region_bit(Region::recv) | region_bit(Region::gather);
  u32 regions = common | region_bit(Region::latent);
  if (shares) regions |= region_bit(Region::reduced);
  if (polls_slots) regions |= region_bit(Region::rows) | region_bit(Region::weights);
  if (polls_shared) regions |= region_bit(Region::polled_shared);
  return regions;
}

}  // namespace moetail::protocol
