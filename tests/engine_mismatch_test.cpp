// SPDX-License-Identifier: Apache-2.0
// Ranks that disagree about a call, and a route map that points beyond its rows: named faults, never wrong
// numbers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <climits>

#include "tests/expect_error.hpp"
#include "tests/harness.hpp"
#include "tests/hooks.hpp"
#include "tests/record.hpp"
#include "tests/variants.hpp"

namespace moetail::testing {
namespace {

using protocol::FaultKind;
using protocol::HeaderField;
using protocol::Site;
using namespace std::chrono_literals;

/// Enqueues one rank's part of a call, as a process of its own would: no other rank's part is looked at.
void enqueue_rank(const RankCall& call) {
  runtime::RankRun run{"run", call.tail->impl(), call.call};
  runtime::check_run(run);
  runtime::enqueue_runs({&run, 1});
}

/// One call in which every rank has its own batch and mode.
void enqueue_each(Harness& harness, const std::vector<int>& batches, const std::vector<Mode>& modes) {
  const HeldStreams held(harness.world());
  for (int rank = 0; rank < harness.shape().ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    CallOptions options;
    options.mode = modes[r];
    const auto& inputs = harness.make_inputs(batches[r], options);
    enqueue_rank(harness.prepare_rank(rank, batches[r], inputs, options));
  }
}

/// The records after rank 2 disagreed with the others in `field`: somebody saw it first hand, the others were
/// told.
void check_mismatch(Harness& harness, HeaderField field, std::uint64_t others, std::uint64_t odd_one) {
  const std::string name = protocol::header_field_name(field);
  expect_error(Code::fault, {"header_poll", "disagree", name + " is"},
               [&] { harness.world().synchronize(); });
  int first_hand = 0;
  for (int rank = 0; rank < harness.shape().ranks; ++rank) {
    const auto report = harness.boxes()[static_cast<std::size_t>(rank)].status();
    ASSERT_TRUE(report) << rank;
    SCOPED_TRACE(report->text());
    const auto& record = report->record;
    EXPECT_EQ(record.rank, rank);
    if (record.kind == FaultKind::poisoned) continue;  // and wherever it was
    ASSERT_EQ(record.kind, FaultKind::header_mismatch);
    EXPECT_STREQ(protocol::site_name(record.site), "header_poll");
    ++first_hand;
    EXPECT_EQ(record.field, field);
    EXPECT_EQ(record.peer == 2 || record.rank == 2, true) << "both ranks are named";
    EXPECT_EQ(record.expected, rank == 2 ? odd_one : others);
    EXPECT_EQ(record.seen, rank == 2 ? others : odd_one);
    const auto value = [&](std::uint64_t seen) {
      return field == HeaderField::mode ? std::string(protocol::mode_name(static_cast<Mode>(seen)))
                                        : std::to_string(seen);
    };
    EXPECT_NE(report->text().find(fmt::format("ranks {} and {} disagree: {} is {} here and {} there", rank,
                                              record.peer, name, value(record.expected), value(record.seen))),
              std::string::npos);
  }
  EXPECT_GT(first_hand, 0);
  harness.world().recover(harness.boxes());
  for (const Variant& variant : variants()) {
    CallOptions call;
    call.mode = variant.mode;
    harness.check(2, call);
  }
}

// Nobody needs the deadline: whoever sees the mismatch poisons the others.
HarnessOptions patient() {
  HarnessOptions options;
  options.layers = 2;
  options.world.deadline = 60s;
  return options;
}

TEST(EngineMismatch, Batches) {
  for (Mode mode : {Mode::front, Mode::front_poll, Mode::publish, Mode::twoshot}) {
    SCOPED_TRACE(protocol::mode_name(mode));
    Harness harness(small_shape(4), patient());
    enqueue_each(harness, {3, 3, 5, 3}, std::vector<Mode>(4, mode));
    check_mismatch(harness, HeaderField::batch, 3, 5);
  }
  record_fault("a rank passes another batch", kThreads, 4,
               "named fault: field, both ranks, both values; right results after recover");
}

TEST(EngineMismatch, Modes) {
  for (auto [others, odd_one] : {std::pair{Mode::front, Mode::publish},
                                 {Mode::publish, Mode::front},
                                 {Mode::twoshot, Mode::publish},
                                 {Mode::front_poll, Mode::front}}) {
    SCOPED_TRACE(fmt::format("{} and {}", protocol::mode_name(others), protocol::mode_name(odd_one)));
    Harness harness(small_shape(4), patient());
    enqueue_each(harness, {2, 2, 2, 2}, {others, others, odd_one, others});
    check_mismatch(harness, HeaderField::mode, static_cast<std::uint64_t>(others),
                   static_cast<std::uint64_t>(odd_one));
  }
  record_fault("a rank passes another mode", kThreads, 4,
               "named fault: field, both ranks, both values; right results after recover");
}

// World::run does not know that two tails are of one layer; the header does.
TEST(EngineMismatch, LayersThroughTheDoor) {
  for (Mode mode : {Mode::front, Mode::publish}) {
    Harness harness(small_shape(4), patient());
    std::vector<RankCall> calls;
    HeldStreams held(harness.world());
    for (int rank = 0; rank < 4; ++rank) {
      CallOptions options;
      options.mode = mode;
      options.layer = rank == 2 ? 1 : 0;
      calls.push_back(harness.prepare_rank(rank, 2, harness.make_inputs(2, options), options));
    }
    harness.world().run(calls);
    held.open();
    check_mismatch(harness, HeaderField::layer, 1, 2);
  }
  record_fault("a rank passes another layer", kThreads, 2,
               "named fault: field, both ranks, both values; right results after recover");
}

TEST(EngineMismatch, LayerZeroIsCompatibleWithAny) {
  Harness harness(small_shape(2));
  const PreparedTail unlabelled(
      harness.boxes()[1],
      TailWeights::from_full(harness.shape(), 1, harness.weights().w_up, harness.weights().gamma));
  CallOptions options;
  const auto& inputs = harness.make_inputs(2, options);
  auto calls = harness.prepare(2, inputs, options);
  harness.world().recover(harness.boxes());  // forgets what prepare has pushed with the labelled tail
  unlabelled.push({inputs.ranks[1].shared, inputs.arrays[1].shared.size()}, 2, options.mode);
  calls[0].call.shared = {inputs.ranks[0].shared, inputs.arrays[0].shared.size()};
  calls[1].tail = const_cast<PreparedTail*>(&unlabelled);
  const Outputs& outputs = harness.consume(harness.world().run(calls), options);
  harness.world().synchronize();
  EXPECT_EQ(harness.judge(2, inputs, options, outputs), "");
}

// Another eps: the rank belongs to another model, which only the hash in the header knows.
TEST(EngineMismatch, ShapeOrEps) {
  Harness harness(small_shape(4), patient());
  auto& shape = harness.state(2).view.layout.shape;
  const auto hash = [&] { return protocol::hash_shape(shape, protocol::bits_from_float(shape.eps)); };
  const auto others = hash();
  shape.eps = 1e-6f;
  const auto odd_one = hash();
  ASSERT_NE(others, odd_one);
  enqueue_each(harness, {2, 2, 2, 2}, std::vector<Mode>(4, Mode::front));
  expect_error(Code::fault, {"disagree", "shape or eps"}, [&] { harness.world().synchronize(); });
  shape.eps = harness.shape().eps;
  check_mismatch(harness, HeaderField::shape, others, odd_one);
  record_fault("a rank passes another shape or eps", kThreads, 1,
               "named fault: field, both ranks, both values; right results after recover");
}

// --- route maps

class EngineMap : public ::testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, EngineMap,
                         ::testing::Values(Mode::front, Mode::front_poll, Mode::publish, Mode::twoshot),
                         [](const auto& mode) { return std::string(protocol::mode_name(mode.param)); });

TEST_P(EngineMap, AnIndexBeyondTheRowsIsNamed) {
  Harness harness(small_shape(4), patient());
  for (int beyond : {0, 1, 1000}) {
    CallOptions options;
    options.mode = GetParam();
    options.inputs.form = Form::permuted;
    auto& inputs = harness.make_inputs(3, options);
    const int index = beyond == 1000 ? INT_MAX : inputs.ranks[1].num_rows + beyond;
    const auto route = static_cast<std::size_t>(2 * harness.shape().top_k + 4);  // token 2, route 4
    inputs.arrays[1].map[route] = index;
    {
      const HeldStreams held(harness.world());
      harness.enqueue(3, inputs, options);
    }
    const std::string text =
        fmt::format("map[token 2, k 4] = {}: accepted is below P = {}", index, inputs.ranks[1].num_rows);
    expect_error(Code::fault, {"rank 1", "layer 1", text}, [&] { harness.world().synchronize(); });
    const auto record = harness.boxes()[1].status()->record;
    EXPECT_EQ(record.kind, FaultKind::map_index);
    EXPECT_EQ(record.rank, 1);
    EXPECT_EQ(record.token, 2);
    EXPECT_EQ(record.k, 4);
    EXPECT_EQ(record.seen, static_cast<std::uint64_t>(index));
    EXPECT_EQ(record.expected, static_cast<std::uint64_t>(inputs.ranks[1].num_rows));
    for (std::size_t rank : {0u, 2u, 3u}) {
      const auto report = harness.boxes()[rank].status();
      ASSERT_TRUE(report);
      EXPECT_EQ(report->record.kind, FaultKind::poisoned) << report->text();
      EXPECT_EQ(report->record.peer, 1) << report->text();
    }
    harness.world().recover(harness.boxes());
    harness.check(3, options);
  }
  record_fault("map: an index beyond the rows", kThreads, 3,
               "named fault: rank, token, route, value; right results after recover");
}

// A rank without rows takes part all the same: P = 0, every route negative.
TEST_P(EngineMap, RanksWithoutRows) {
  Harness harness(small_shape(4), patient());
  CallOptions options;
  options.mode = GetParam();
  options.inputs.form = Form::permuted;
  options.inputs.dropped_share = 1.0;
  options.inputs.spare_rows = 0;
  const auto& nobody = harness.make_inputs(3, options);
  for (const auto& rank : nobody.ranks) ASSERT_EQ(rank.num_rows, 0);
  const Outputs& outputs = harness.enqueue(3, nobody, options);
  harness.world().synchronize();
  EXPECT_EQ(harness.judge(3, nobody, options, outputs), "");

  options.inputs.dropped_share = 0.0;
  auto& some = harness.make_inputs(3, options);
  for (std::size_t rank : {0u, 3u}) {
    std::fill(some.arrays[rank].map.begin(), some.arrays[rank].map.end(), INT_MIN);
    some.ranks[rank].num_rows = 0;
  }
  const Outputs& partly = harness.enqueue(3, some, options);
  harness.world().synchronize();
  EXPECT_EQ(harness.judge(3, some, options, partly), "");
  record_fault("map: P = 0 on some ranks and on all, all routes negative", kThreads, 2, "right results");
}

TEST_P(EngineMap, AnIndexWithoutRowsIsAFaultToo) {
  Harness harness(small_shape(2), patient());
  CallOptions options;
  options.mode = GetParam();
  options.inputs.form = Form::permuted;
  options.inputs.dropped_share = 1.0;
  options.inputs.spare_rows = 0;
  auto& inputs = harness.make_inputs(1, options);
  inputs.arrays[0].map[3] = 0;
  {
    const HeldStreams held(harness.world());
    harness.enqueue(1, inputs, options);
  }
  expect_error(Code::fault, {"rank 0", "map[token 0, k 3] = 0: accepted is below P = 0"},
               [&] { harness.world().synchronize(); });
  harness.world().recover(harness.boxes());
  inputs.arrays[0].map[3] = -7;
  const Outputs& outputs = harness.enqueue(1, inputs, options);
  harness.world().synchronize();
  EXPECT_EQ(harness.judge(1, inputs, options, outputs), "");
  record_fault("map: an index where P = 0", kThreads, 1, "named fault; a negative one is a dropped route");
}

// Several routes of a token may name one row, and rows may be left over.
TEST_P(EngineMap, RowsMayBeSharedByRoutes) {
  Harness harness(small_shape(2), patient());
  CallOptions options;
  options.mode = GetParam();
  options.inputs.form = Form::permuted;
  auto& inputs = harness.make_inputs(3, options);
  for (auto& arrays : inputs.arrays) std::fill(arrays.map.begin(), arrays.map.begin() + 9, 1);
  const Outputs& outputs = harness.enqueue(3, inputs, options);
  harness.world().synchronize();
  EXPECT_EQ(harness.judge(3, inputs, options, outputs), "");
  record_fault("map: duplicate indices", kThreads, 1, "right results");
}

}  // namespace
}  // namespace moetail::testing
