// SPDX-License-Identifier: Apache-2.0
// A layer's weights and its prepared tail: what is refused, and that a shard is its part of the whole.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/expect_error.hpp"
#include "tests/harness.hpp"
#include "tests/spoil.hpp"
#include "tests/variants.hpp"

namespace moetail::testing {
namespace {

TEST(RuntimeWeights, BuffersOfALayer) {
  const Shape shape = small_shape(4);  // H = 96, L = 160
  const auto layer = verify::make_layer(shape, 1, 0, 1);
  const std::span<const Bf16> full = layer.w_up, norm = layer.gamma, shard = full.subspan(24 * 160, 24 * 160);
  expect_error(Code::invalid_argument, {"up_proj: size = 15359", "at least 15360"},
               [&] { TailWeights::from_full(shape, 1, shorter(full), norm); });
  expect_error(Code::invalid_argument, {"up_proj = null"},
               [&] { TailWeights::from_full(shape, 1, missing(full), norm); });
  expect_error(Code::invalid_argument, {"up_proj = 0x", "16 bytes"},
               [&] { TailWeights::from_full(shape, 1, one_further(full), norm); });
  expect_error(Code::invalid_argument, {"shard: size = 3839", "at least 3840"},
               [&] { TailWeights::from_shard(shape, 1, shorter(shard), norm); });
  expect_error(Code::invalid_argument, {"shard = null"},
               [&] { TailWeights::from_shard(shape, 1, missing(shard), norm); });
  expect_error(Code::invalid_argument, {"norm: size = 159", "at least 160"},
               [&] { TailWeights::from_full(shape, 1, full, shorter(norm)); });
  expect_error(Code::invalid_argument, {"norm = null"},
               [&] { TailWeights::from_shard(shape, 1, shard, missing(norm)); });
  expect_error(Code::invalid_argument, {"norm = 0x", "16 bytes"},
               [&] { TailWeights::from_shard(shape, 1, shard, one_further(norm)); });
  for (int rank : {-1, 4})
    expect_error(Code::invalid_argument, {fmt::format("rank = {}", rank), "0 to 3"},
                 [&] { TailWeights::from_full(shape, rank, full, norm); });
  Shape broken = shape;
  broken.hidden = 100;
  expect_error(Code::invalid_argument, {"hidden = 100", "a multiple of 8 * ranks"},
               [&] { TailWeights::from_full(broken, 1, full, norm); });
  broken = shape;
  broken.ranks = 0;
  expect_error(Code::invalid_argument, {"ranks = 0"},
               [&] { TailWeights::from_shard(broken, 0, shard, norm); });
}

TEST(RuntimeWeights, AShardIsTheSameAsItsPartOfTheWhole) {
  Harness harness(small_shape(4));
  const auto& layer = harness.weights();
  const std::span<const Bf16> full = layer.w_up;
  CallOptions options;
  const auto reference = harness.check(3, options);
  const auto& inputs = harness.make_inputs(3, options);
  std::vector<PreparedTail> tails;
  std::vector<RankCall> calls;
  for (int rank = 0; rank < 4; ++rank) {
    const auto shard = full.subspan(static_cast<std::size_t>(rank) * 24 * 160, 24 * 160);
    const auto weights = TailWeights::from_shard(harness.shape(), rank, shard, layer.gamma);
    EXPECT_EQ(weights.shard(), TailWeights::from_full(harness.shape(), rank, full, layer.gamma).shard());
    EXPECT_EQ(weights.norm(), layer.gamma.data());
    EXPECT_EQ(weights.rank(), rank);
    EXPECT_EQ(weights.shape().latent, 160);
    tails.emplace_back(harness.boxes()[static_cast<std::size_t>(rank)], weights, 65535);
  }
  for (std::size_t rank = 0; rank < 4; ++rank) {
    Call call;
    call.batch = 3;
    call.shared = inputs.arrays[rank].shared;
    call.routed =
        Routed::expanded(inputs.arrays[rank].rows, std::span<const float>(inputs.arrays[rank].weights_fp32));
    calls.push_back({&tails[rank], call});
  }
  const Outputs& outputs = harness.consume(harness.world().run(calls), options);
  harness.world().synchronize();
  for (const auto& rows : outputs) EXPECT_EQ(rows, reference);
}

TEST(RuntimeWeights, OfAnotherRankOrShapeAreRefused) {
  const Harness harness(small_shape(2));
  const auto& box = const_cast<Harness&>(harness).boxes()[1];
  const auto& layer = harness.weights();
  expect_error(Code::invalid_argument, {"weights: rank = 0", "accepted is 1"}, [&] {
    PreparedTail(box, TailWeights::from_full(harness.shape(), 0, layer.w_up, layer.gamma));
  });
  Shape other = harness.shape();
  other.latent = 16;
  expect_error(Code::invalid_argument, {"hidden x latent / ranks = 48 x 16 / 2", "48 x 80 / 2"},
               [&] { PreparedTail(box, TailWeights::from_full(other, 1, layer.w_up, layer.gamma)); });
  other = harness.shape();
  other.hidden = 16;
  expect_error(Code::invalid_argument, {"16 x 80 / 2", "48 x 80 / 2"},
               [&] { PreparedTail(box, TailWeights::from_full(other, 1, layer.w_up, layer.gamma)); });
  for (int label : {-1, 65536})
    expect_error(Code::invalid_argument, {fmt::format("layer = {}", label), "0 to 65535"}, [&] {
      PreparedTail(box, TailWeights::from_full(harness.shape(), 1, layer.w_up, layer.gamma), label);
    });
}

}  // namespace
}  // namespace moetail::testing
