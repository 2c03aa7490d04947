// SPDX-License-Identifier: Apache-2.0
// The engine against the oracle over a grid: ranks, modes, forms, batches, top-k, odd sizes, weight types,
// residual, threads and sharing. Every call also has equal bits on all ranks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/harness.hpp"
#include "tests/hooks.hpp"
#include "tests/variants.hpp"

namespace moetail::testing {
namespace {

constexpr Mode kModes[] = {Mode::front, Mode::front_poll, Mode::publish, Mode::twoshot};
class EngineGrid : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, EngineGrid, ::testing::Values(1, 2, 4), rank_name);
// The race detector's price of a publication grows with the number of threads.
INSTANTIATE_TEST_SUITE_P(ManyRanksAtFullSize, EngineGrid, ::testing::Values(8, 16), rank_name);

std::string describe(int ranks, int batch, const CallOptions& options) {
  return fmt::format("T={} B={} {} {} {} residual={}", ranks, batch, protocol::mode_name(options.mode),
                     protocol::form_name(options.inputs.form),
                     options.inputs.weight_type == WeightType::fp32 ? "fp32" : "bf16",
                     options.inputs.residual);
}

void check(Harness& harness, int batch, const CallOptions& options) {
  SCOPED_TRACE(describe(harness.shape().ranks, batch, options));
  harness.check(batch, options);
}

// Every mode, form and batch up to the capacity; what else there is to choose is drawn from a hash.
void check_modes_forms_and_batches(Harness& harness) {
  std::uint64_t seed = 0;
  for (Mode mode : kModes)
    for (Form form : kForms)
      for (int batch : {1, 2, 3, 5, 7, 8}) {
        if (form == Form::published && mode == Mode::front) continue;
        CallOptions options;
        options.mode = mode;
        options.inputs.form = form;
        options.seed = ++seed;
        const std::uint64_t draw = verify::mix64(seed);
        options.inputs.weight_type = (draw & 1) == 0 ? WeightType::fp32 : WeightType::bf16;
        options.inputs.residual = (draw & 2) == 0;
        options.inputs.dropped_share = (draw & 4) == 0 ? 0.5 : 0.1;
        options.side_push = (draw & 8) == 0;
        options.consume_in_place = (draw & 16) == 0;
        check(harness, batch, options);
      }
}

TEST_P(EngineGrid, ModesFormsAndBatches) {
  Harness harness(small_shape(GetParam()));
  check_modes_forms_and_batches(harness);
}

TEST_P(EngineGrid, ModesFormsAndBatchesWithACopyARank) {
  HarnessOptions own;
  own.own_copies = true;
  Harness harness(small_shape(GetParam()), own);
  ASSERT_EQ(harness.state(0).view.common, nullptr);
  check_modes_forms_and_batches(harness);
}

TEST_P(EngineGrid, WeightTypesAndResidual) {
  Harness harness(small_shape(GetParam()));
  for (Mode mode : kModes)
    for (Form form : {Form::expanded, Form::permuted})
      for (WeightType type : {WeightType::bf16, WeightType::fp32})
        for (bool residual : {false, true}) {
          CallOptions options;
          options.mode = mode;
          options.inputs.form = form;
          options.inputs.weight_type = type;
          options.inputs.residual = residual;
          check(harness, 2, options);
        }
}

TEST_P(EngineGrid, EveryKindOfTopK) {
  for (int top_k : {1, 2, 3, 4, 16, 33, 63, 64}) {
    SCOPED_TRACE(fmt::format("K={}", top_k));
    Shape shape = small_shape(GetParam());
    shape.top_k = top_k;
    Harness harness(shape);
    for (Mode mode : kModes)
      for (Form form : {Form::expanded, Form::permuted}) {
        CallOptions options;
        options.mode = mode;
        options.inputs.form = form;
        options.inputs.dropped_share = 0.4;
        check(harness, 2, options);
      }
  }
}

// H a multiple of 8 T, L of 8 T in twoshot mode and of 8 in the others: the least sizes, odd multiples,
// powers of two.
TEST_P(EngineGrid, SizesTheRulesAllow) {
  const int ranks = GetParam();
  for (int hidden_lines : {1, 3, 8, 21})
    for (int latent_lines : {1, 7, 16}) {
      Shape shape = small_shape(ranks);
      shape.hidden = 8 * ranks * hidden_lines;
      shape.latent = 8 * ranks * latent_lines;
      SCOPED_TRACE(fmt::format("H={} L={}", shape.hidden, shape.latent));
      Harness harness(shape);
      for (Mode mode : kModes) {
        CallOptions options;
        options.mode = mode;
        options.inputs.form = Form::permuted;
        check(harness, 3, options);
      }
    }
  for (int latent : {8, 24, 8 * 33}) {  // what twoshot cannot split
    Shape shape = small_shape(ranks);
    shape.latent = latent;
    SCOPED_TRACE(fmt::format("L={}", shape.latent));
    Harness harness(shape);
    for (Mode mode : {Mode::front, Mode::front_poll, Mode::publish}) {
      CallOptions options;
      options.mode = mode;
      check(harness, 2, options);
    }
  }
}

// Several clusters a rank: with more of them than there are lines to share out, too.
TEST_P(EngineGrid, ThreadsOfARank) {
  const int ranks = GetParam();
  for (int clusters : {1, 2, 3, 4, 8}) {
    if (ranks * clusters > 32) continue;
    HarnessOptions harness_options;
    harness_options.world.threads = ranks * clusters;
    harness_options.policy = kSharePolicy;
    SCOPED_TRACE(fmt::format("{} clusters a rank", clusters));
    Harness harness(small_shape(ranks), harness_options);
    for (Mode mode : kModes)
      for (Form form : kForms)
        for (int batch : {1, 3, 8}) {
          if (form == Form::published && mode == Mode::front) continue;
          CallOptions options;
          options.mode = mode;
          options.inputs.form = form;
          options.inputs.residual = batch == 3;
          check(harness, batch, options);
        }
  }
}

TEST_P(EngineGrid, SharingOnAndOff) {
  for (int share_from : {1, 3, 65535}) {
    HarnessOptions harness_options;
    harness_options.world.threads = 2 * GetParam();
    harness_options.policy = fmt::format(R"({{"share_from": {}}})", share_from);
    SCOPED_TRACE(harness_options.policy);
    Harness harness(small_shape(GetParam()), harness_options);
    for (int batch : {1, 2, 3, 8})
      for (Form form : kForms) {
        CallOptions options;
        options.mode = Mode::publish;
        options.inputs.form = form;
        check(harness, batch, options);
      }
  }
}

// The built-in table: front up to 8 tokens (4 on eight ranks), then publish, which shares from 16 on.
TEST_P(EngineGrid, ThePolicyChoosesTheMode) {
  Shape shape = small_shape(GetParam());
  shape.capacity = 20;
  Harness harness(shape);
  SiteLog log;
  harness.set_hooks(&log);
  const int limit = GetParam() == 8 ? 4 : 8;
  for (int batch : {1, limit, limit + 1, 15, 16, 20}) {
    CallOptions options;
    options.mode = Mode::automatic;
    log.clear();
    check(harness, batch, options);
    // A front call sends its shards and header itself; only sharing goes through the reduced rows.
    EXPECT_EQ(log.passed(protocol::Site::reduced_publish), batch >= 16) << batch;
    EXPECT_FALSE(log.passed(protocol::Site::twoshot_sum));
    EXPECT_FALSE(log.passed(protocol::Site::rows_fill));
  }
  harness.set_hooks(nullptr);
}

// Kimi K3's sizes (a box of 8 tokens): the contract's own bounds.
TEST_P(EngineGrid, KimiK3AtFullSize) {
  Shape shape;
  shape.ranks = GetParam();
  shape.capacity = 8;
  shape.poll_capacity = 8;
  Harness harness(shape);
  for (Mode mode : kModes)
    for (int batch : {1, 5}) {
      CallOptions options;
      options.mode = mode;
      options.inputs.form = batch == 1 ? Form::expanded : Form::permuted;
      options.inputs.residual = batch == 5;
      check(harness, batch, options);
    }
}

}  // namespace
}  // namespace moetail::testing
