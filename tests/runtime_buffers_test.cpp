// SPDX-License-Identifier: Apache-2.0
// Short, misaligned and missing buffers of every kind: the error names the buffer, its value and what is
// accepted, nothing is enqueued, and the right call works afterwards.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/expect_error.hpp"
#include "tests/harness.hpp"
#include "tests/record.hpp"
#include "tests/spoil.hpp"
#include "tests/variants.hpp"

namespace moetail::testing {
namespace {

constexpr int kBufferBatch = 2;
constexpr std::size_t kRoutes = 2 * 5;
constexpr std::size_t kLatent = 80, kHidden = 48;

struct Wrong {
  const char* name;
  std::function<void(Call&)> edit;
  std::vector<std::string> parts;
};

class RuntimeBuffers : public ::testing::Test {
 protected:
  RuntimeBuffers() : harness_(small_shape(2)) {}

  std::uint64_t epoch() {
    harness_.world().synchronize();
    return *harness_.state(1).view.control(protocol::Control::epoch);
  }

  /// A good call, spoiled on rank 1 in each way, then made.
  void try_all(Form form, WeightType type, const std::vector<Wrong>& wrongs, Mode mode = Mode::publish) {
    CallOptions options;
    options.mode = mode;
    options.inputs.form = form;
    options.inputs.weight_type = type;
    options.inputs.residual = true;
    const auto& inputs = harness_.make_inputs(kBufferBatch, options);
    auto calls = harness_.prepare(kBufferBatch, inputs, options);
    const auto before = epoch();
    for (const Wrong& wrong : wrongs) {
      SCOPED_TRACE(wrong.name);
      auto spoiled = calls;
      wrong.edit(spoiled[1].call);
      expect_error(Code::invalid_argument, wrong.parts, [&] { harness_.world().run(spoiled); });
      EXPECT_EQ(epoch(), before);
    }
    const Outputs& outputs = harness_.consume(harness_.world().run(calls), options);
    EXPECT_EQ(epoch(), before + 1);
    EXPECT_EQ(harness_.judge(kBufferBatch, inputs, options, outputs), "");
    tries_ += wrongs.size();
    record_fault("buffers one element short, missing, null or unaligned", kThreads, tries_, kRefused);
  }

  static constexpr const char* kRefused = "refused by name with nothing enqueued; the call then runs right";
  Harness harness_;
  std::uint64_t tries_ = 0;
};

const auto kRows = std::to_string(kRoutes * kLatent);
const auto kPartial = std::to_string(kBufferBatch * kLatent);
const auto kOutput = std::to_string(kBufferBatch * kHidden);

TEST_F(RuntimeBuffers, Expanded) {
  try_all(Form::expanded, WeightType::fp32,
          {{"short rows",
            [](Call& c) { c.routed.rows = shorter(c.routed.rows); },
            {"rows: size = 799", "at least " + kRows}},
           {"no rows", [](Call& c) { c.routed.rows = {}; }, {"rows: size = 0", "at least " + kRows}},
           {"null rows", [](Call& c) { c.routed.rows = missing(c.routed.rows); }, {"rows = null"}},
           {"misaligned rows",
            [](Call& c) { c.routed.rows = one_further(c.routed.rows); },
            {"rows = 0x", "16 bytes"}},
           {"short weights",
            [](Call& c) { c.routed.weights_fp32 = shorter(c.routed.weights_fp32); },
            {"weights: size = 9", "at least 10"}},
           {"no weights", [](Call& c) { c.routed.weights_fp32 = {}; }, {"weights: size = 0", "at least 10"}},
           {"null weights",
            [](Call& c) { c.routed.weights_fp32 = missing(c.routed.weights_fp32); },
            {"weights = null"}},
           {"misaligned weights",
            [](Call& c) { c.routed.weights_fp32 = misaligned(c.routed.weights_fp32); },
            {"weights = 0x", "aligned to 4 bytes"}},
           {"weights of both types",
            [](Call& c) {
              c.routed.weights_bf16 = {c.routed.rows.data(), c.routed.weights_fp32.size()};
            },
            {"weights = both bf16 and fp32", "one of them"}},
           {"no such form",
            [](Call& c) { c.routed.form = static_cast<Form>(7); },
            {"routed.form = 7", "permuted"}}});
}

TEST_F(RuntimeBuffers, ExpandedWithBf16Weights) {
  try_all(Form::expanded, WeightType::bf16,
          {{"short weights",
            [](Call& c) { c.routed.weights_bf16 = shorter(c.routed.weights_bf16); },
            {"weights: size = 9", "at least 10"}},
           {"null weights",
            [](Call& c) { c.routed.weights_bf16 = missing(c.routed.weights_bf16); },
            {"weights = null"}},
           {"misaligned weights",
            [](Call& c) { c.routed.weights_bf16 = misaligned(c.routed.weights_bf16); },
            {"weights = 0x", "aligned to 2 bytes"}}});
}

TEST_F(RuntimeBuffers, Permuted) {
  try_all(
      Form::permuted, WeightType::fp32,
      {{"short map", [](Call& c) { c.routed.map = shorter(c.routed.map); }, {"map: size = 9", "at least 10"}},
       {"no map", [](Call& c) { c.routed.map = {}; }, {"map: size = 0", "at least 10"}},
       {"null map", [](Call& c) { c.routed.map = missing(c.routed.map); }, {"map = null"}},
       {"misaligned map",
        [](Call& c) { c.routed.map = misaligned(c.routed.map); },
        {"map = 0x", "aligned to 4 bytes"}},
       {"a part of a row",
        [](Call& c) { c.routed.rows = shorter(c.routed.rows); },
        {"rows: size = ", "a multiple of latent = 80"}},
       {"null rows", [](Call& c) { c.routed.rows = missing(c.routed.rows); }, {"rows = null"}},
       {"misaligned rows",
        [](Call& c) { c.routed.rows = one_further(c.routed.rows); },
        {"rows = 0x", "16 bytes"}},
       {"short weights",
        [](Call& c) { c.routed.weights_fp32 = shorter(c.routed.weights_fp32); },
        {"weights: size = 9", "at least 10"}}});
}

TEST_F(RuntimeBuffers, Partial) {
  try_all(Form::partial, WeightType::fp32,
          {{"short",
            [](Call& c) { c.routed.partial = shorter(c.routed.partial); },
            {"partial: size = 159", kPartial}},
           {"none", [](Call& c) { c.routed.partial = {}; }, {"partial: size = 0", kPartial}},
           {"null", [](Call& c) { c.routed.partial = missing(c.routed.partial); }, {"partial = null"}},
           {"misaligned",
            [](Call& c) { c.routed.partial = one_further(c.routed.partial); },
            {"partial = 0x", "16 bytes"}}});
}

TEST_F(RuntimeBuffers, ResidualInEveryMode) {
  for (Mode mode : {Mode::front, Mode::front_poll, Mode::publish, Mode::twoshot})
    try_all(Form::expanded, WeightType::fp32,
            {{"short", [](Call& c) { c.residual = shorter(c.residual); }, {"residual: size = 95", kOutput}},
             {"null", [](Call& c) { c.residual = missing(c.residual); }, {"residual = null"}},
             {"misaligned",
              [](Call& c) { c.residual = one_further(c.residual); },
              {"residual = 0x", "16 bytes"}}},
            mode);
}

// The shared partial given to run itself; in front mode push is optional.
TEST_F(RuntimeBuffers, SharedGivenToRun) {
  CallOptions options;
  options.inputs.form = Form::permuted;
  const auto& inputs = harness_.make_inputs(kBufferBatch, options);
  auto calls = harness_.prepare(kBufferBatch, inputs, options);
  harness_.world().recover(harness_.boxes());  // forgets the push
  for (std::size_t rank = 0; rank < 2; ++rank) calls[rank].call.shared = inputs.arrays[rank].shared;
  const std::vector<Wrong> wrongs = {
      {"short", [](Call& c) { c.shared = shorter(c.shared); }, {"shared: size = 95", kOutput}},
      {"null", [](Call& c) { c.shared = missing(c.shared); }, {"shared = null"}},
      {"misaligned", [](Call& c) { c.shared = one_further(c.shared); }, {"shared = 0x", "16 bytes"}},
      {"none", [](Call& c) { c.shared = {}; }, {"shared = empty", "in front mode"}}};
  for (const Wrong& wrong : wrongs) {
    SCOPED_TRACE(wrong.name);
    auto spoiled = calls;
    wrong.edit(spoiled[1].call);
    expect_error(Code::invalid_argument, wrong.parts, [&] { harness_.world().run(spoiled); });
    EXPECT_EQ(epoch(), 0u);
  }
  const Outputs& outputs = harness_.consume(harness_.world().run(calls), options);
  harness_.world().synchronize();
  EXPECT_EQ(harness_.judge(kBufferBatch, inputs, options, outputs), "");
  record_fault("buffers one element short, missing, null or unaligned", kThreads, 4, kRefused);
}

TEST_F(RuntimeBuffers, SharedGivenToPush) {
  CallOptions options;
  const auto& inputs = harness_.make_inputs(kBufferBatch, options);
  const std::span<const Bf16> shared = inputs.arrays[1].shared;
  for (Mode mode : {Mode::front, Mode::front_poll, Mode::publish, Mode::twoshot}) {
    const auto push = [&](std::span<const Bf16> given) { harness_.tail(1).push(given, kBufferBatch, mode); };
    expect_error(Code::invalid_argument, {"shared: size = 95", kOutput}, [&] { push(shorter(shared)); });
    expect_error(Code::invalid_argument, {"shared: size = 0", kOutput}, [&] { push({}); });
    expect_error(Code::invalid_argument, {"shared = null"}, [&] { push(missing(shared)); });
    expect_error(Code::invalid_argument, {"shared = 0x", "16 bytes"}, [&] { push(one_further(shared)); });
    options.mode = mode;
    harness_.check(kBufferBatch, options);
  }
  record_fault("buffers one element short, missing, null or unaligned", kThreads, 16, kRefused);
}

// Buffers may be longer than needed: padding at the end is nobody's business.
TEST_F(RuntimeBuffers, LongerBuffersAreAccepted) {
  for (Mode mode : {Mode::front, Mode::publish}) {
    CallOptions options;
    options.mode = mode;
    options.inputs.residual = true;
    const auto& more = harness_.make_inputs(kBufferBatch + 3, options);
    const auto& inputs = harness_.make_inputs(kBufferBatch, options);  // the same numbers, fewer of them
    ASSERT_EQ(more.arrays[1].rows[7], inputs.arrays[1].rows[7]);
    std::vector<RankCall> calls;
    for (int rank = 0; rank < 2; ++rank) {
      const auto& arrays = more.arrays[static_cast<std::size_t>(rank)];
      harness_.tail(rank).push(arrays.shared, kBufferBatch, mode);
      Call call;
      call.batch = kBufferBatch;
      call.mode = mode;
      call.routed = Routed::expanded(arrays.rows, std::span<const float>(arrays.weights_fp32));
      call.residual = more.residual;
      calls.push_back({&harness_.tail(rank), call});
    }
    const auto views = harness_.world().run(calls);
    Outputs outputs(2, std::vector<Bf16>(kBufferBatch * kHidden + 8, 0xABCD));
    for (std::size_t rank = 0; rank < 2; ++rank) harness_.boxes()[rank].take(views[rank], outputs[rank]);
    harness_.world().synchronize();
    for (auto& rows : outputs) {
      for (std::size_t i = 0; i < 8; ++i)
        EXPECT_EQ(rows[kBufferBatch * kHidden + i], 0xABCD) << "beyond the rows";
      rows.resize(kBufferBatch * kHidden);
    }
    EXPECT_EQ(harness_.judge(kBufferBatch, inputs, options, outputs), "");
  }
}

TEST_F(RuntimeBuffers, Destination) {
  CallOptions options;
  const auto& inputs = harness_.make_inputs(kBufferBatch, options);
  const auto views = harness_.world().run(harness_.prepare(kBufferBatch, inputs, options));
  std::vector<Bf16> rows(kBufferBatch * kHidden + 8);
  const TailBox& box = harness_.boxes()[1];
  const std::span<Bf16> whole{rows.data(), kBufferBatch * kHidden};
  expect_error(Code::invalid_argument, {"destination: size = 95", kOutput},
               [&] { box.take(views[1], whole.first(95)); });
  expect_error(Code::invalid_argument, {"destination: size = 0", kOutput}, [&] { box.take(views[1], {}); });
  expect_error(Code::invalid_argument, {"destination = null"}, [&] {
    box.take(views[1], {static_cast<Bf16*>(nullptr), whole.size()});
  });
  expect_error(Code::invalid_argument, {"destination = 0x", "16 bytes"}, [&] {
    box.take(views[1], {rows.data() + 1, whole.size()});
  });
  // The view is untaken still.
  const Outputs& outputs = harness_.consume(views, options);
  harness_.world().synchronize();
  EXPECT_EQ(harness_.judge(kBufferBatch, inputs, options, outputs), "");
  record_fault("buffers one element short, missing, null or unaligned", kThreads, 4, kRefused);
}

}  // namespace
}  // namespace moetail::testing
