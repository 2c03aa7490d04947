// SPDX-License-Identifier: Apache-2.0
// The generated inputs: that they are what verify/hash.hpp defines, however they are cut, and shaped as
// promised.
#include "verify/generate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/error.hpp"
#include "protocol/numerics.hpp"
#include "protocol/sentinel.hpp"
#include "verify/inputs.hpp"

namespace moetail::verify {
namespace {

using protocol::f32_from_bf16;

std::vector<double> values(const std::vector<u16>& bits) {
  std::vector<double> out;
  for (u16 b : bits) out.push_back(static_cast<double>(f32_from_bf16(b)));
  return out;
}

double mean(const std::vector<double>& v) {
  return std::accumulate(v.begin(), v.end(), 0.0) / v.size();
}

double moment(const std::vector<double>& v, int power) {
  double sum = 0;
  for (double x : v) sum += std::pow(x, power);
  return sum / v.size();
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum / a.size();
}

// Computed once by an independent program: the hash is a promise to every rank of another build.
TEST(Hash, HasTheStatedValues) {
  const auto pair = [](u64 seed, Stream stream, int rank, int layer, u64 index) {
    const HashPair hash = hash_pair({seed, stream, rank, layer}, index);
    return std::pair(hash.first, hash.second);
  };
  EXPECT_EQ(pair(0, Stream::rows, 0, 0, 0), std::pair(0x4b1c479bu, 0xfd4bacdfu));
  EXPECT_EQ(pair(42, Stream::w_up, 0, 91, 25690111), std::pair(0x6f08e8a4u, 0x22b0a183u));
  EXPECT_EQ(pair(7, Stream::shared, 15, 3, (u64{1} << 32) + 5), std::pair(0x489af240u, 0xa25e0365u));
}

TEST(FillNormal, EqualsTheDefinitionAtAnyOffsetAndLength) {
  const Key key{11, Stream::rows, 3, 7};
  for (u64 begin : {u64{0}, u64{1}, u64{13}, (u64{1} << 32) - 20}) {
    for (std::size_t size : {0, 1, 7, 16, 33, 257}) {
      std::vector<u16> out(size);
      fill_normal(key, {0.7f, 0.25f}, begin, out);
      for (std::size_t i = 0; i < size; ++i)
        ASSERT_EQ(out[i], normal_element(key, {0.7f, 0.25f}, begin + i)) << begin << " + " << i;
    }
  }
}

TEST(FillNormal, ThreadsChangeNothing) {
  std::vector<u16> one(100001), three(one.size());
  fill_normal({1, Stream::w_up, 0, 2}, {}, 0, one);
  fill_normal_parallel({1, Stream::w_up, 0, 2}, {}, three, 3);
  EXPECT_EQ(one, three);
}

TEST(FillNormal, IsBellShapedWithTheMomentsAskedFor) {
  std::vector<u16> out(400000);
  fill_normal({5, Stream::rows, 1, 1}, {}, 0, out);
  const std::vector<double> v = values(out);
  EXPECT_NEAR(mean(v), 0.0, 0.01);
  EXPECT_NEAR(moment(v, 2), 1.0, 0.01);
  EXPECT_NEAR(moment(v, 4), 2.7, 0.05);  // 3 - 1.2 / 4 for four uniform parts
  EXPECT_LE(*std::max_element(v.begin(), v.end()), 3.5);

  std::vector<u16> gamma(100000);
  fill_normal({5, Stream::gamma, 0, 1}, {0.1f, 1.0f}, 0, gamma);
  const std::vector<double> g = values(gamma);
  EXPECT_NEAR(mean(g), 1.0, 0.002);
  EXPECT_NEAR(moment(g, 2) - mean(g) * mean(g), 0.01, 0.0005);
}

TEST(FillNormal, ArraysOfOtherKeysAreUnrelated) {
  constexpr std::size_t kSize = 200000;
  const auto make = [](const Key& key, u64 begin = 0) {
    std::vector<u16> out(kSize);
    fill_normal(key, {}, begin, out);
    return values(out);
  };
  const Key key{5, Stream::rows, 1, 1};
  const std::vector<double> base = make(key);
  // A correlation of unrelated arrays has deviation 1 / sqrt(200000) = 0.0022.
  EXPECT_LT(std::abs(correlation(base, make({6, Stream::rows, 1, 1}))), 0.012);
  EXPECT_LT(std::abs(correlation(base, make({5, Stream::shared, 1, 1}))), 0.012);
  EXPECT_LT(std::abs(correlation(base, make({5, Stream::rows, 2, 1}))), 0.012);
  EXPECT_LT(std::abs(correlation(base, make({5, Stream::rows, 1, 2}))), 0.012);
  for (u64 shift : {1, 2, 16, 3584}) EXPECT_LT(std::abs(correlation(base, make(key, shift))), 0.012) << shift;
}

TEST(FillNormal, RefusesAMeanItCannotHold) {
  std::vector<u16> out(1);
  EXPECT_THROW(fill_normal({}, {0.0f, 0.0f}, 0, out), Error);
  EXPECT_THROW(fill_normal({}, {1e-6f, 1.0f}, 0, out), Error);
}

TEST(Sprinkle, PutsTheShareAskedForAndOnlyTheKindsAskedFor) {
  for (u32 kind = 1; kind <= special::kAll; kind <<= 1) {
    std::vector<u16> out(20000, 0x3F80);
    sprinkle({3, Stream::rows, 0, 0}, {kind, 0.25}, 0, out);
    int touched = 0;
    for (std::size_t i = 0; i < out.size(); i += 2) {
      const u32 word = out[i] | static_cast<u32>(out[i + 1]) << 16;
      if (word == 0x3F803F80u) continue;
      ++touched;
      const u16 changed = out[i] != 0x3F80 ? out[i] : out[i + 1];
      const u32 magnitude = changed & 0x7FFFu;
      switch (kind) {
        case special::kMinusZero: EXPECT_EQ(changed, 0x8000); break;
        case special::kPlusZero: EXPECT_EQ(changed, 0x0000); break;
        case special::kSubnormal: EXPECT_TRUE(magnitude > 0 && magnitude < 0x80) << changed; break;
        case special::kZeroPair: EXPECT_EQ(word, 0x80000000u); break;
        case special::kInfinity: EXPECT_EQ(magnitude, 0x7F80u); break;
        case special::kNan: EXPECT_GT(magnitude, 0x7F80u); break;
        case special::kSentinel: EXPECT_EQ(word, protocol::kEmptyWord); break;
        default: EXPECT_NE(word, protocol::kEmptyWord);
      }
    }
    EXPECT_NEAR(touched, 2500, 250) << kind;
  }
}

TEST(Sprinkle, AllKindsAppearAndTheFiniteOnesAreFinite) {
  std::vector<u16> all(40000, 0x3F80), finite(all);
  sprinkle({3, Stream::rows, 0, 0}, {special::kAll, 0.5}, 0, all);
  sprinkle({3, Stream::rows, 0, 0}, {special::kFinite, 0.5}, 0, finite);
  EXPECT_TRUE(std::all_of(finite.begin(), finite.end(), [](u16 b) { return (b & 0x7F80u) != 0x7F80u; }));
  std::set<u16> nans;
  int sentinels = 0;
  for (std::size_t i = 0; i < all.size(); i += 2) {
    sentinels += all[i] == 0xFFFF && all[i + 1] == 0xFFFF;
    if ((all[i] & 0x7FFFu) > 0x7F80u) nans.insert(all[i]);
  }
  EXPECT_GT(sentinels, 500);
  EXPECT_GT(nans.size(), 100u);  // payloads
  for (u16 wanted : {0x8000, 0x0000, 0x7F80, 0xFF80, 0x7FFF})
    EXPECT_NE(std::find(all.begin(), all.end(), wanted), all.end()) << wanted;
}

TEST(Sprinkle, DoesNotDependOnHowTheArrayIsCut) {
  const Key key{9, Stream::shared, 2, 4};
  std::vector<u16> whole(4001, 0x4000), cut(whole);
  sprinkle(key, {special::kAll, 0.4}, 0, whole);
  const std::span<u16> span(cut);
  for (std::size_t begin = 0; begin < cut.size(); begin += 77)
    sprinkle(key, {special::kAll, 0.4}, begin,
             span.subspan(begin, std::min<std::size_t>(77, cut.size() - begin)));
  EXPECT_EQ(whole, cut);
  EXPECT_THROW(sprinkle(key, {special::kAll, 1.5}, 0, cut), Error);
  EXPECT_THROW(sprinkle(key, {1u << 20, 0.5}, 0, cut), Error);
}

TEST(Weights, ArePositiveAndSumToOne) {
  for (int top_k : {1, 2, 16, 64}) {
    std::vector<float> weights(static_cast<std::size_t>(10 * top_k));
    std::vector<u16> rounded(weights.size()), tail(static_cast<std::size_t>(4 * top_k));
    fill_weights({1, Stream::weights, 0, 0}, top_k, 0, std::span(weights));
    fill_weights({1, Stream::weights, 0, 0}, top_k, 0, std::span(rounded));
    fill_weights({1, Stream::weights, 0, 0}, top_k, 6, std::span(tail));
    EXPECT_TRUE(std::equal(tail.begin(), tail.end(), rounded.begin() + 6 * top_k));
    for (int token = 0; token < 10; ++token) {
      double sum = 0;
      for (int k = 0; k < top_k; ++k) {
        const float weight = weights[token * top_k + k];
        EXPECT_GT(weight, 0.0f);
        EXPECT_EQ(rounded[token * top_k + k], protocol::bf16_from_f32(weight));
        sum += static_cast<double>(weight);
      }
      EXPECT_NEAR(sum, 1.0, 1e-5);
    }
  }
}

TEST(RouteMap, IsAPermutationWithDroppedRoutesOfManyKinds) {
  const RouteMap map = make_route_map({1, Stream::map, 2, 3}, 200, 16, 0.25, 5);
  std::set<i32> rows, negatives;
  int dropped = 0;
  for (i32 row : map.map) {
    if (row < 0) {
      negatives.insert(row);
      ++dropped;
    } else {
      EXPECT_LT(row, map.num_rows);
      EXPECT_TRUE(rows.insert(row).second) << row << " twice";
    }
  }
  EXPECT_NEAR(dropped, 800, 120);
  EXPECT_GE(negatives.size(), 5u);
  EXPECT_EQ(map.num_rows, static_cast<int>(rows.size()) + 5);
  EXPECT_FALSE(std::is_sorted(map.map.begin(), map.map.end()));
  EXPECT_NE(map.map, make_route_map({1, Stream::map, 1, 3}, 200, 16, 0.25, 5).map);
}

TEST(RouteMap, ReachesItsEnds) {
  EXPECT_EQ(make_route_map({}, 4, 8, 1.0).num_rows, 0);
  const RouteMap kept = make_route_map({}, 4, 8, 0.0);
  EXPECT_EQ(kept.num_rows, 32);
  EXPECT_TRUE(std::all_of(kept.map.begin(), kept.map.end(), [](i32 row) { return row >= 0; }));
  EXPECT_THROW(make_route_map({}, 4, 0, 0.5), Error);
  EXPECT_THROW(make_route_map({}, 4, 8, -0.5), Error);
}

TEST(SampleColumns, TakesWholeLinesFromEveryShard) {
  const std::vector<i32> columns = sample_columns(1, 7168, 8, 256);
  EXPECT_EQ(columns.size(), 256u);
  EXPECT_TRUE(std::is_sorted(columns.begin(), columns.end()));
  std::vector<int> per_shard(8);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    EXPECT_EQ(columns[i] % 8, static_cast<int>(i % 8));
    ++per_shard[static_cast<std::size_t>(columns[i] / 896)];
  }
  EXPECT_EQ(per_shard, std::vector<int>(8, 32));
  EXPECT_NE(columns, sample_columns(2, 7168, 8, 256));
  EXPECT_EQ(sample_columns(1, 128, 2, 1).size(), 16u);
  EXPECT_EQ(sample_columns(1, 128, 2, 1000).size(), 128u);
  EXPECT_THROW(sample_columns(1, 100, 2, 8), Error);
}

TEST(MakeInputs, AnyRankComputesAnyElement) {
  Shape shape;
  shape.hidden = 128;
  shape.latent = 64;
  shape.ranks = 4;
  shape.top_k = 3;
  const CallInputs inputs = make_inputs(shape, 5, 77, 6);
  EXPECT_EQ(inputs.arrays[2].rows[321], normal_element({77, Stream::rows, 2, 6}, {}, 321));
  EXPECT_EQ(inputs.arrays[3].shared[200], normal_element({77, Stream::shared, 3, 6}, {0.5f}, 200));
  EXPECT_EQ(make_layer(shape, 77, 6).w_up[5000], normal_element({77, Stream::w_up, 0, 6}, {0.125f}, 5000));
  EXPECT_THROW(make_inputs(shape, 0, 77, 6), Error);
}

}  // namespace
}  // namespace moetail::verify
