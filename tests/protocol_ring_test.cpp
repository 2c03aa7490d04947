// SPDX-License-Identifier: Apache-2.0
// The ring: which slot a call uses and re-arms over any number of epochs, and what its record says.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "protocol/ring.hpp"

namespace moetail::protocol {
namespace {

void check_epochs(u64 first, int count) {
  for (int i = 0; i < count; ++i) {
    const u64 epoch = first + static_cast<u64>(i);
    const int slot = slot_of(epoch);
    ASSERT_TRUE(slot >= 0 && slot < 3) << epoch;
    ASSERT_EQ(static_cast<u64>(slot), epoch % 3) << epoch;
    ASSERT_EQ(slot_of(epoch + 1), (slot + 1) % 3) << epoch;
    // What is re-armed is neither this call's slot nor the next one's, where a faster peer may write.
    ASSERT_EQ(rearm_slot_of(epoch), (slot + 2) % 3) << epoch;
    ASSERT_EQ(rearm_slot_of(epoch + 1), slot) << epoch;
    ASSERT_NE(record_word(epoch), previous_record_word(epoch)) << epoch;
    ASSERT_EQ(previous_record_word(epoch + 1), record_word(epoch)) << epoch;
  }
}

TEST(ProtocolRing, SlotsRotateOverManyEpochs) {
  check_epochs(0, 100'000);
  // 2^32 is no multiple of 3: a 32-bit epoch would repeat a slot here.
  check_epochs((u64{1} << 32) - 50'000, 100'000);
  check_epochs((u64{1} << 40) - 1'000, 2'000);
  check_epochs((u64{1} << 63) - 1'000, 2'000);
}

TEST(ProtocolRing, TheFirstCallReArmsTheSlotBeforeIt) {
  EXPECT_EQ(slot_of(0), 0);
  EXPECT_EQ(rearm_slot_of(0), 2);
  EXPECT_EQ(record_word(0), Control::record_even);
  EXPECT_EQ(previous_record_word(0), Control::record_odd);
}

RC_GTEST_PROP(ProtocolRingProperty, RecordsSurviveTheirWord, ()) {
  const Record record{*rc::gen::inRange(0, kMaxCapacity + 1), *rc::gen::inRange(0u, 1u << kRegions)};
  const Record back = unpack_record(pack_record(record));
  RC_ASSERT(back.batch == record.batch);
  RC_ASSERT(back.regions == record.regions);
}

TEST(ProtocolRing, TheEmptyWordIsTheEmptyRecord) {
  EXPECT_EQ(pack_record(Record{}), 0u);
  EXPECT_EQ(unpack_record(0).batch, 0);
  EXPECT_EQ(unpack_record(0).regions, 0u);
}

TEST(ProtocolRing, DirtiedRegionsByMode) {
  const u32 latent = region_bit(Region::latent), shared = region_bit(Region::shared),
            recv = region_bit(Region::recv), gather = region_bit(Region::gather),
            reduced = region_bit(Region::reduced), rows = region_bit(Region::rows),
            weights = region_bit(Region::weights), polled = region_bit(Region::polled_shared),
            header = region_bit(Region::header);
  EXPECT_EQ(dirtied_regions(Mode::front, false, false, false), latent | shared | header);
  EXPECT_EQ(dirtied_regions(Mode::publish, false, false, false), latent | shared | header);
  EXPECT_EQ(dirtied_regions(Mode::publish, true, false, false), latent | shared | header | reduced);
  EXPECT_EQ(dirtied_regions(Mode::front_poll, false, true, true),
            latent | shared | header | rows | weights | polled);
  EXPECT_EQ(dirtied_regions(Mode::front_poll, false, true, false), latent | shared | header | rows | weights);
  EXPECT_EQ(dirtied_regions(Mode::front_poll, false, false, true), latent | shared | header | polled);
  EXPECT_EQ(dirtied_regions(Mode::twoshot, false, false, false), shared | header | recv | gather);
}

TEST(ProtocolRing, NoCallReArmsTheOutputOrTheControlWords) {
  for (Mode mode : {Mode::front, Mode::front_poll, Mode::publish, Mode::twoshot})
    for (int flags = 0; flags < 8; ++flags) {
      const u32 regions = dirtied_regions(mode, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0);
      EXPECT_EQ(regions & (region_bit(Region::out) | region_bit(Region::control)), 0u);
      // Headers and shared shards are part of every call.
      EXPECT_NE(regions & region_bit(Region::header), 0u);
      EXPECT_NE(regions & region_bit(Region::shared), 0u);
      EXPECT_EQ(regions >> kRegions, 0u);
    }
}

}  // namespace
}  // namespace moetail::protocol
