// SPDX-License-Identifier: Apache-2.0
// The call header: every field survives the 64 bits, neither half is ever the sentinel, and differences are
// named.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <set>
#include <string>

#include "protocol/header.hpp"

namespace moetail::protocol {
namespace {

bool same(const Header& a, const Header& b) {
  return a.batch == b.batch && a.mode == b.mode && a.layer == b.layer && a.shape == b.shape;
}

bool holds_sentinel(u64 word) {
  return is_empty(static_cast<u32>(word)) || is_empty(static_cast<u32>(word >> 32));
}

RC_GTEST_PROP(ProtocolHeaderProperty, EveryFieldSurvives, ()) {
  const Header header{*rc::gen::inRange(0u, 0x10000u), *rc::gen::inRange(0u, 8u),
                      *rc::gen::inRange(0u, 0x10000u), *rc::gen::inRange(0u, 0x8000000u)};
  const u64 word = pack_header(header);
  RC_ASSERT(same(unpack_header(word), header));
  RC_ASSERT(!holds_sentinel(word));
}

TEST(ProtocolHeader, CornersOfEveryFieldSurvive) {
  for (u32 batch : {0u, 1u, 0x7FFFu, 0x8000u, 0xFFFFu})
    for (u32 mode = 0; mode < 8; ++mode)
      for (u32 layer : {0u, 1u, 0x8000u, 0xFFFFu})
        for (u32 shape : {0u, 1u, 0x7FFFu, 0x8000u, 0x7FF8000u, 0x7FFFFFFu}) {
          const Header header{batch, mode, layer, shape};
          const u64 word = pack_header(header);
          EXPECT_TRUE(same(unpack_header(word), header)) << batch << ' ' << mode << ' ' << layer;
          EXPECT_FALSE(holds_sentinel(word));
        }
}

// Fields that are too wide may lose bits, but must not spill into a sentinel half.
RC_GTEST_PROP(ProtocolHeaderProperty, NoHeaderHoldsTheSentinel, ()) {
  const Header header{*rc::gen::arbitrary<u32>(), *rc::gen::arbitrary<u32>(), *rc::gen::arbitrary<u32>(),
                      *rc::gen::arbitrary<u32>()};
  RC_ASSERT(!holds_sentinel(pack_header(header)));
  const Header full{~0u, ~0u, ~0u, ~0u};
  RC_ASSERT(!holds_sentinel(pack_header(full)));
}

TEST(ProtocolHeader, DifferencesAreNamedShapeFirst) {
  const Header mine{4, 1, 7, 99};
  EXPECT_EQ(header_difference(mine, mine), HeaderField::none);
  EXPECT_EQ(header_difference(mine, {5, 1, 7, 99}), HeaderField::batch);
  EXPECT_EQ(header_difference(mine, {4, 3, 7, 99}), HeaderField::mode);
  EXPECT_EQ(header_difference(mine, {4, 1, 8, 99}), HeaderField::layer);
  EXPECT_EQ(header_difference(mine, {4, 1, 7, 98}), HeaderField::shape);
  EXPECT_EQ(header_difference(mine, {5, 3, 8, 98}), HeaderField::shape);
  EXPECT_EQ(header_difference(mine, {5, 3, 8, 99}), HeaderField::layer);
  EXPECT_EQ(header_difference(mine, {5, 3, 7, 99}), HeaderField::batch);
}

TEST(ProtocolHeader, LayerZeroIsNotCompared) {
  EXPECT_EQ(header_difference({4, 1, 0, 99}, {4, 1, 8, 99}), HeaderField::none);
  EXPECT_EQ(header_difference({4, 1, 8, 99}, {4, 1, 0, 99}), HeaderField::none);
  EXPECT_EQ(header_difference({4, 1, 0, 99}, {3, 1, 8, 99}), HeaderField::batch);
}

TEST(ProtocolHeader, ValuesOfFields) {
  const Header header{4, 1, 7, 99};
  EXPECT_EQ(header_field_value(header, HeaderField::batch), 4u);
  EXPECT_EQ(header_field_value(header, HeaderField::mode), 1u);
  EXPECT_EQ(header_field_value(header, HeaderField::layer), 7u);
  EXPECT_EQ(header_field_value(header, HeaderField::shape), 99u);
  EXPECT_EQ(header_field_value(header, HeaderField::none), 0u);
}

TEST(ProtocolHeader, HashOfShapeSeesEveryField) {
  const Shape base;
  const auto hash = [](const Shape& shape) { return hash_shape(shape, std::bit_cast<u32>(shape.eps)); };
  std::set<u32> hashes = {hash(base)};
  Shape other = base;
  const auto add = [&] {
    EXPECT_TRUE(hashes.insert(hash(other)).second);
    EXPECT_LT(hash(other), 1u << 27);
    other = base;
  };
  other.hidden = 7168 + 64;
  add();
  other.latent = 3584 + 64;
  add();
  other.ranks = 16;
  add();
  other.top_k = 8;
  add();
  other.capacity = 64;
  add();
  other.poll_capacity = 8;
  add();
  other.eps = 1e-6f;
  add();
  other.eps = std::bit_cast<float>(std::bit_cast<u32>(base.eps) + 1);
  add();
  // Two fields exchanged.
  other.top_k = base.poll_capacity + 1;
  other.poll_capacity = base.top_k + 1;
  add();
  EXPECT_EQ(hash(base), hash(Shape{}));
}

}  // namespace
}  // namespace moetail::protocol
