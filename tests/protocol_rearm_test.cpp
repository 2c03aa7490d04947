// SPDX-License-Identifier: Apache-2.0
// The re-arm on plain memory: exactly what the previous call's record names, whoever of the clusters does
// which part.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "tests/plain_box.hpp"

namespace moetail::protocol {
namespace {

using moetail::testing::PlainGroup;
using moetail::testing::PlainMemory;

constexpr unsigned char kData = 0x11;

Shape rearm_shape(int ranks, int capacity = 4) {
  Shape shape;
  shape.ranks = ranks;
  shape.hidden = 24 * ranks;
  shape.latent = 8 * ranks;
  shape.top_k = 3;
  shape.capacity = capacity;
  shape.poll_capacity = capacity;
  return shape;
}

constexpr bool is_whole(Region region) {
  return region == Region::latent || region == Region::gather || region == Region::reduced;
}

/// A box as it must be afterwards, byte by byte from the table of regions; `regions`: those that lie in it.
template <class Filter>
std::vector<unsigned char> expected_bytes(const Layout& layout, u64 epoch, const Record& record,
                                          Filter&& regions) {
  std::vector<unsigned char> bytes(layout.total_bytes, kData);
  for (const RegionSpec& spec : kRegionTable) {
    if ((record.regions & region_bit(spec.region)) == 0 || !regions(spec.region)) continue;
    const int sources = spec.per_source ? layout.shape.ranks : 1;
    const int rows = spec.region == Region::header ? 1 : record.batch;
    for (int source = 0; source < sources; ++source)
      for (int row = 0; row < rows; ++row) {
        const u64 begin = layout.at(spec.region, static_cast<int>((epoch + 2) % 3), source, row);
        for (u64 i = 0; i < layout.row_bytes[static_cast<int>(spec.region)]; ++i) bytes[begin + i] = 0xFF;
      }
  }
  return bytes;
}

std::vector<unsigned char> expected_bytes(const Layout& layout, u64 epoch, const Record& record) {
  return expected_bytes(layout, epoch, record, [](Region) { return true; });
}

void check_rearm(const Shape& shape, int rank, u64 epoch, const Record& record, int parts) {
  PlainGroup group(shape, kData);
  PlainMemory memory;
  for (int part = 0; part < parts; ++part)
    rearm_previous(memory, group.view(rank), epoch, record, part, parts);
  const auto expected = expected_bytes(group.layout(), epoch, record);
  ASSERT_EQ(group.bytes(rank), expected);
  // No part does what another does too.
  ASSERT_EQ(memory.armed_bytes, static_cast<std::size_t>(std::count(expected.begin(), expected.end(), 0xFF)));
  const std::vector<unsigned char> untouched(group.layout().total_bytes, kData);
  for (int peer = 0; peer < shape.ranks; ++peer)
    if (peer != rank) {
      ASSERT_EQ(group.bytes(peer), untouched) << "a rank re-arms its own box only";
    }
}

TEST(ProtocolRearm, EveryModeEverySlotEveryNumberOfParts) {
  for (int ranks : {1, 2, 4}) {
    const Shape shape = rearm_shape(ranks);
    for (Mode mode : {Mode::front, Mode::front_poll, Mode::publish, Mode::twoshot})
      for (bool shares : {false, true})
        for (u64 epoch : {0, 1, 2})
          for (int parts : {1, 2, 3, 5, 8}) {
            if (shares && mode != Mode::publish) continue;
            const bool polls = mode == Mode::front_poll;
            for (int batch : {1, 3, 4}) {
              const Record record{batch, dirtied_regions(mode, shares, polls, polls)};
              ASSERT_NO_FATAL_FAILURE(check_rearm(shape, ranks - 1, epoch, record, parts))
                  << mode_name(mode) << " epoch " << epoch << " batch " << batch << " parts " << parts;
            }
          }
  }
}

// What all ranks read in one copy is re-armed by all of them together, each word by one.
TEST(ProtocolRearm, ACommonCopyIsRearmedOnce) {
  for (int ranks : {1, 2, 4, 8})
    for (Mode mode : {Mode::front, Mode::front_poll, Mode::publish, Mode::twoshot})
      for (u64 epoch : {0, 1, 2})
        for (int parts : {1, 3})
          for (int batch : {1, 4}) {
            const bool polls = mode == Mode::front_poll;
            const Record record{batch, dirtied_regions(mode, mode == Mode::publish, polls, polls)};
            PlainGroup group(rearm_shape(ranks), kData, true);
            PlainMemory memory;
            for (int rank = 0; rank < ranks; ++rank)
              for (int part = 0; part < parts; ++part)
                rearm_previous(memory, group.view(rank), epoch, record, part, parts);
            const auto common = expected_bytes(group.layout(), epoch, record, is_whole);
            const auto own = expected_bytes(group.layout(), epoch, record,
                                            [](Region region) { return !is_whole(region); });
            ASSERT_EQ(group.common_bytes(), common) << mode_name(mode) << " of " << ranks << " ranks";
            for (int rank = 0; rank < ranks; ++rank) ASSERT_EQ(group.bytes(rank), own) << rank;
            ASSERT_EQ(memory.armed_bytes,
                      static_cast<std::size_t>(std::count(common.begin(), common.end(), 0xFF) +
                                               ranks * std::count(own.begin(), own.end(), 0xFF)));
          }
}

// By source: a rank clears its own rows of the common latents and no other's.
TEST(ProtocolRearm, ARankClearsItsOwnRowsOfTheCommonLatents) {
  PlainGroup group(rearm_shape(4), kData, true);
  PlainMemory memory;
  rearm_previous(memory, group.view(2), 1, {3, region_bit(Region::latent)}, 0, 1);
  auto expected = std::vector<unsigned char>(group.layout().total_bytes, kData);
  const u64 begin = group.layout().at(Region::latent, 0, 2, 0),
            end = group.layout().at(Region::latent, 0, 2, 3);
  std::fill(expected.begin() + static_cast<long>(begin), expected.begin() + static_cast<long>(end), 0xFF);
  EXPECT_EQ(group.common_bytes(), expected);
}

TEST(ProtocolRearm, TheEmptyRecordTouchesNothing) {
  check_rearm(rearm_shape(2), 0, 0, Record{}, 1);
  check_rearm(rearm_shape(2), 1, 7, unpack_record(0), 3);
}

RC_GTEST_PROP(ProtocolRearmProperty, AnyRecordAnyParts, ()) {
  Shape shape = rearm_shape(*rc::gen::element(1, 2, 4, 8), *rc::gen::inRange(1, 6));
  shape.top_k = *rc::gen::inRange(1, 8);
  shape.latent = 8 * *rc::gen::inRange(1, 12);
  Record record;
  record.batch = *rc::gen::inRange(0, shape.capacity + 1);
  record.regions =
      *rc::gen::inRange(0u, 1u << kRegions) & ~(region_bit(Region::out) | region_bit(Region::control));
  const u64 epoch =
      *rc::gen::oneOf(rc::gen::inRange<u64>(0, 100), rc::gen::inRange<u64>(0xFFFFFFF0u, 0x100000010u));
  const int rank = *rc::gen::inRange(0, shape.ranks), parts = *rc::gen::inRange(1, 17);
  PlainGroup group(shape, kData);
  PlainMemory memory;
  for (int part = 0; part < parts; ++part)
    rearm_previous(memory, group.view(rank), epoch, record, part, parts);
  RC_ASSERT(group.bytes(rank) == expected_bytes(group.layout(), epoch, record));
}

RC_GTEST_PROP(ProtocolRearmProperty, PartsAreDisjointAndComplete, ()) {
  const u64 count = *rc::gen::oneOf(rc::gen::inRange<u64>(0, 50), rc::gen::inRange<u64>(0, u64{1} << 40));
  const int parts = *rc::gen::inRange(1, 200);
  u64 end = 0;
  for (int part = 0; part < parts; ++part) {
    const Range range = part_of(count, part, parts);
    RC_ASSERT(range.begin == end);
    RC_ASSERT(range.end >= range.begin);
    RC_ASSERT(range.end - range.begin <= count / static_cast<u64>(parts) + 1);
    end = range.end;
  }
  RC_ASSERT(end == count);
}

// The record of the previous call counts, whatever the present one is.
TEST(ProtocolRearm, ThePreviousCallsRecordIsUsed) {
  PlainGroup group(rearm_shape(2), kData);
  PlainMemory memory;
  const BoxView view = group.view(0);
  const Record large{4, dirtied_regions(Mode::twoshot, false, false, false)};
  const Record small{1, dirtied_regions(Mode::front, false, false, false)};
  *view.control(Control::record_even) = pack_record(large);
  *view.control(Control::record_odd) = pack_record(small);
  const Record after_even = record_to_rearm(memory, view, 1, small);
  EXPECT_EQ(after_even.batch, 4);
  EXPECT_EQ(after_even.regions, large.regions);
  const Record after_odd = record_to_rearm(memory, view, 2, large);
  EXPECT_EQ(after_odd.batch, 1);
  EXPECT_EQ(after_odd.regions, small.regions);
}

TEST(ProtocolRearm, ArmingABoxLeavesNothingBut) {
  for (int ranks : {1, 4})
    for (bool has_common : {false, true}) {
      PlainGroup group(rearm_shape(ranks), kData, has_common);
      PlainMemory memory;
      for (int rank = 0; rank < ranks; ++rank) arm_box(memory, group.view(rank));
      for (int rank = 0; rank < ranks; ++rank) {
        const auto own = group.bytes(rank);
        const auto common = has_common ? group.common_bytes() : own;
        for (const RegionSpec& spec : kRegionTable) {
          if (spec.region == Region::control) continue;
          const auto& bytes = is_whole(spec.region) ? common : own;
          const u64 begin = group.layout().at(spec.region, 0, 0, 0);
          const u64 count = group.layout().region_bytes[static_cast<int>(spec.region)];
          for (u64 i = 0; i < count; ++i) ASSERT_EQ(bytes[begin + i], 0xFF) << spec.name << " byte " << i;
        }
        for (int word = 0; word < kControlWords; ++word)
          EXPECT_EQ(*group.view(rank).control(static_cast<Control>(word)), 0u);
      }
    }
}

}  // namespace
}  // namespace moetail::protocol
