// SPDX-License-Identifier: Apache-2.0
// The layout table: sizes by hand for Kimi K3, and what must hold for every shape.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <string>

#include "protocol/layout.hpp"

namespace moetail::protocol {
namespace {

u64 bytes_of(const Layout& layout, Region region) {
  return layout.region_bytes[static_cast<int>(region)];
}
u64 offset_of(const Layout& layout, Region region) {
  return layout.offset[static_cast<int>(region)];
}

TEST(ProtocolLayout, KimiK3OnEightRanksByHand) {
  constexpr Layout kLayout = make_layout(Shape{});
  EXPECT_EQ(bytes_of(kLayout, Region::latent), 22'020'096u);      // [3, 8, 128, 3584] bf16
  EXPECT_EQ(bytes_of(kLayout, Region::shared), 5'505'024u);       // [3, 8, 128, 896] bf16
  EXPECT_EQ(bytes_of(kLayout, Region::out), 1'835'008u);          // [128, 7168] bf16
  EXPECT_EQ(bytes_of(kLayout, Region::recv), 2'752'512u);         // [3 * 8, 128, 448] bf16
  EXPECT_EQ(bytes_of(kLayout, Region::gather), 2'752'512u);       // [3, 128, 3584] bf16
  EXPECT_EQ(bytes_of(kLayout, Region::reduced), 5'505'024u);      // [3, 128, 3584] fp32
  EXPECT_EQ(bytes_of(kLayout, Region::rows), 5'505'024u);         // [3, 16, 16, 3584] bf16
  EXPECT_EQ(bytes_of(kLayout, Region::weights), 3'072u);          // [3, 16, 16] fp32
  EXPECT_EQ(bytes_of(kLayout, Region::polled_shared), 688'128u);  // [3, 16, 7168] bf16
  EXPECT_EQ(bytes_of(kLayout, Region::header), 192u);             // [3, 8] u64
  EXPECT_EQ(bytes_of(kLayout, Region::control), 512u);  // 4 words together, 3 with a line of their own
  EXPECT_EQ(offset_of(kLayout, Region::latent), 0u);
  EXPECT_EQ(offset_of(kLayout, Region::shared), 22'020'096u);
  EXPECT_EQ(offset_of(kLayout, Region::out), 27'525'120u);
  EXPECT_EQ(offset_of(kLayout, Region::control), 46'566'656u);  // the header is padded to 256 bytes
  EXPECT_EQ(kLayout.total_bytes, 46'567'168u);
}

TEST(ProtocolLayout, PlacesByHand) {
  const Layout layout = make_layout(Shape{});
  EXPECT_EQ(layout.at(Region::latent, 1, 2, 3), ((1 * 8 + 2) * 128 + 3) * 7168u);
  EXPECT_EQ(layout.at(Region::shared, 2, 7, 127), 22'020'096u + ((2 * 8 + 7) * 128 + 127) * 1792u);
  EXPECT_EQ(layout.at(Region::out, 0, 0, 5), 27'525'120u + 5 * 14'336u);
  EXPECT_EQ(layout.at(Region::weights, 2, 0, 15), offset_of(layout, Region::weights) + (2 * 16 + 15) * 64u);
  EXPECT_EQ(layout.at(Region::header, 2, 5, 0), offset_of(layout, Region::header) + (2 * 8 + 5) * 8u);
  EXPECT_EQ(layout.control_at(Control::bell_target), 46'566'656u + 3 * 128u);
}

TEST(ProtocolLayout, WhatNobodyCanUseTakesNoRoom) {
  Shape shape;
  shape.latent = 8 * 9;  // not a multiple of 8 * ranks: no two-shot
  Layout layout = make_layout(shape);
  EXPECT_EQ(bytes_of(layout, Region::recv), 0u);
  EXPECT_EQ(bytes_of(layout, Region::gather), 0u);
  EXPECT_GT(bytes_of(layout, Region::reduced), 0u);
  shape.poll_capacity = 0;
  layout = make_layout(shape);
  for (Region region : {Region::rows, Region::weights, Region::polled_shared})
    EXPECT_EQ(bytes_of(layout, region), 0u);
}

TEST(ProtocolLayout, TheTableNamesEveryRegionOnce) {
  std::set<std::string> names;
  for (int i = 0; i < kRegions; ++i) {
    const RegionSpec spec = spec_of(static_cast<Region>(i));
    EXPECT_EQ(static_cast<int>(spec.region), i);
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    EXPECT_NE(std::string(spec.writer), "");
    EXPECT_NE(std::string(spec.reader), "");
    const std::string element = spec.element;
    EXPECT_EQ(spec.element_bytes, element == "bf16" ? 2 : element == "fp32" ? 4 : 8) << spec.name;
  }
}

Shape any_shape() {
  Shape shape;
  shape.ranks = *rc::gen::element<i32>(1, 2, 4, 8, 16);
  shape.hidden = 8 * shape.ranks * *rc::gen::inRange(1, 40);
  shape.latent = 8 * *rc::gen::inRange(1, 60);
  shape.top_k = *rc::gen::inRange(1, kMaxTopK + 1);
  shape.capacity = *rc::gen::inRange(1, 20);
  shape.poll_capacity = *rc::gen::inRange(0, shape.capacity + 1);
  return shape;
}

RC_GTEST_PROP(ProtocolLayoutProperty, RegionsAreAlignedAndDoNotOverlap, ()) {
  const Shape shape = any_shape();
  RC_PRE(first_broken_rule(shape) == ShapeRule::ok);
  const Layout layout = make_layout(shape);
  u64 end = 0;
  for (int i = 0; i < kRegions; ++i) {
    RC_ASSERT(layout.offset[i] % kRegionAlignment == 0u);
    RC_ASSERT(layout.offset[i] >= end);
    RC_ASSERT(layout.offset[i] - end < kRegionAlignment);
    end = layout.offset[i] + layout.region_bytes[i];
  }
  RC_ASSERT(layout.total_bytes >= end && layout.total_bytes % kRegionAlignment == 0u);
}

RC_GTEST_PROP(ProtocolLayoutProperty, RowsOfARegionTileIt, ()) {
  const Shape shape = any_shape();
  const Layout layout = make_layout(shape);
  for (const RegionSpec& spec : kRegionTable) {
    const int i = static_cast<int>(spec.region);
    const u64 rows = row_count(shape, spec.rows);
    const int slots = spec.per_slot ? kSlots : 1, sources = spec.per_source ? shape.ranks : 1;
    u64 expected = layout.offset[i];
    for (int slot = 0; slot < slots; ++slot)
      for (int source = 0; source < sources; ++source)
        for (u64 row = 0; row < rows; ++row) {
          RC_ASSERT(layout.at(spec.region, slot, source, static_cast<int>(row)) == expected);
          // Every row of bf16 or fp32 sums is read in lines; weights and headers in words.
          const bool in_lines = spec.region != Region::weights && spec.region != Region::header;
          RC_ASSERT(expected % (in_lines ? 16u : static_cast<u64>(spec.element_bytes)) == 0u);
          expected += layout.row_bytes[i];
        }
    RC_ASSERT(expected == layout.offset[i] + layout.region_bytes[i]);
  }
}

RC_GTEST_PROP(ProtocolLayoutProperty, ControlWordsOfALaunchLieInOneSectorAndTheOthersInLinesOfTheirOwn, ()) {
  const Layout layout = make_layout(any_shape());
  const u64 begin = offset_of(layout, Region::control);
  std::set<u64> lines{begin / 64};
  std::set<u64> together;
  for (int word = 0; word < kControlWords; ++word) {
    const u64 at = layout.control_at(static_cast<Control>(word));
    RC_ASSERT(at >= begin && at + 8 <= layout.total_bytes);
    if (word < kControlWordsTogether)
      RC_ASSERT(at / 32 == begin / 32 && together.insert(at).second);
    else
      RC_ASSERT(lines.insert(at / 64).second);
  }
}

}  // namespace
}  // namespace moetail::protocol
