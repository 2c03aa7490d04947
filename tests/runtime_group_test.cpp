// SPDX-License-Identifier: Apache-2.0
// Group calls and forced modes: which are refused, with nothing enqueued on any rank.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/expect_error.hpp"
#include "tests/harness.hpp"
#include "tests/hooks.hpp"
#include "tests/variants.hpp"

namespace moetail::testing {
namespace {

class RuntimeGroup : public ::testing::Test {
 protected:
  RuntimeGroup() : harness_(small_shape(2)) {}

  void refuse(const std::vector<std::string>& parts, std::span<const RankCall> calls,
              Code code = Code::invalid_argument) {
    expect_error(code, parts, [&] { harness_.world().run(calls); });
    harness_.world().synchronize();
    EXPECT_EQ(*harness_.state(0).view.control(protocol::Control::epoch), 0u)
        << "nothing may have been enqueued";
    EXPECT_EQ(*harness_.state(1).view.control(protocol::Control::epoch), 0u);
  }

  Harness harness_;
};

TEST_F(RuntimeGroup, WrongGroupsAreRefusedAndTheRightOneRuns) {
  CallOptions options;
  const auto& inputs = harness_.make_inputs(3, options);
  const auto calls = harness_.prepare(3, inputs, options);
  refuse({"calls: size = 1", "2, one for each local rank"}, std::span(calls).first(1));
  refuse({"calls: size = 0", "2"}, {});
  const std::vector<RankCall> three = {calls[0], calls[1], calls[0]};
  refuse({"calls: size = 3", "2"}, three);
  const std::vector<RankCall> twice = {calls[1], calls[1]};
  refuse({"calls: rank = 1", "each local rank once"}, twice);
  std::vector<RankCall> wrong = calls;
  wrong[1].tail = nullptr;
  refuse({"calls: tail = null"}, wrong);
  wrong = calls;
  wrong[1].call.batch = 2;
  refuse({"batch of rank 1 = 2", "3, the same on all ranks"}, wrong);
  for (int batch : {-1, 9}) {
    wrong = calls;
    wrong[0].call.batch = wrong[1].call.batch = batch;
    refuse({fmt::format("batch = {}", batch), "0 to the capacity, 8"}, wrong);
  }

  Harness sibling(harness_.world(), small_shape(2)), stranger(small_shape(2));
  wrong = calls;
  wrong[1].tail = &sibling.tail(1);
  refuse({"box of rank 1", "one make_boxes returned"}, wrong);
  wrong = calls;
  wrong[1].tail = &stranger.tail(1);
  refuse({"calls: box", "a box of this world"}, wrong);

  const std::vector<RankCall> backwards = {calls[1], calls[0]};  // any order of ranks is right
  auto views = harness_.world().run(backwards);
  EXPECT_EQ(views[0].rank, 1);
  std::swap(views[0], views[1]);
  const Outputs& outputs = harness_.consume(views, options);
  harness_.world().synchronize();
  EXPECT_EQ(harness_.judge(3, inputs, options, outputs), "");
}

TEST_F(RuntimeGroup, ModesOfRanksMustBeTheSame) {
  CallOptions options;
  const auto& inputs = harness_.make_inputs(2, options);
  options.mode = Mode::publish;
  std::vector<RankCall> calls = {harness_.prepare_rank(0, 2, inputs, options)};
  options.mode = Mode::front;
  calls.push_back(harness_.prepare_rank(1, 2, inputs, options));
  refuse({"mode of rank 1 = front", "publish, the same on all ranks"}, calls);
}

TEST_F(RuntimeGroup, AloneARankCannotRunInAWorldOfSeveral) {
  expect_error(Code::call_order, {"run", "2 ranks in this process", "World::run"},
               [&] { harness_.tail(0).run(Call{}); });
}

TEST_F(RuntimeGroup, BatchesBeyondTheCapacity) {
  std::vector<Bf16> shared(static_cast<std::size_t>(9 * 48));
  const PreparedTail& tail = harness_.tail(1);
  for (int batch : {-1, 9, 1 << 30}) {
    const std::vector<std::string> parts = {fmt::format("batch = {}", batch), "0 to the capacity, 8"};
    expect_error(Code::invalid_argument, parts, [&] { tail.push(shared, batch); });
    expect_error(Code::invalid_argument, parts, [&] { tail.publish(batch); });
    expect_error(Code::invalid_argument, parts, [&] { tail.poll_slots(batch); });
  }
  harness_.check(8, CallOptions{});
}

TEST(RuntimeModes, FrontPollBeyondThePollingCapacity) {
  Shape shape = small_shape(2);
  shape.poll_capacity = 3;
  Harness harness(shape);
  std::vector<Bf16> shared(static_cast<std::size_t>(8 * shape.hidden));
  const std::vector<std::string> parts = {"batch = 4", "at most poll_capacity = 3 in front_poll mode"};
  expect_error(Code::invalid_argument, parts, [&] { harness.tail(0).push(shared, 4, Mode::front_poll); });
  expect_error(Code::invalid_argument, parts, [&] { harness.tail(0).poll_slots(4, Mode::front_poll); });
  CallOptions options;
  options.mode = Mode::front_poll;
  harness.check(3, options);

  // Left to the policy, the producer is told that this is a front call, and the call is one.
  options.mode = Mode::front;
  const auto& inputs = harness.make_inputs(4, options);
  std::vector<RankCall> calls;
  for (int rank = 0; rank < 2; ++rank) EXPECT_FALSE(harness.tail(rank).poll_slots(4));
  SiteLog log;
  harness.set_hooks(&log);
  for (int rank = 0; rank < 2; ++rank) {
    options.mode = Mode::automatic;
    calls.push_back(harness.prepare_rank(rank, 4, inputs, options));
    const std::vector<std::string> fixed = {"mode = publish", "accepted is front, as this call began"};
    expect_error(Code::call_order, fixed, [&] { harness.tail(rank).publish(4, Mode::publish); });
  }
  const Outputs& outputs = harness.consume(harness.world().run(calls), options);
  harness.world().synchronize();
  EXPECT_EQ(harness.judge(4, inputs, options, outputs), "");
  EXPECT_FALSE(log.passed(protocol::Site::rows_fill));
  harness.set_hooks(nullptr);
}

TEST(RuntimeModes, TwoshotWithALatentItCannotSplit) {
  Shape shape = small_shape(4);
  shape.latent = 8 * 9;
  Harness harness(shape);
  std::vector<Bf16> shared(static_cast<std::size_t>(2 * shape.hidden));
  const std::vector<std::string> parts = {"latent = 72", "a multiple of 8 * ranks in twoshot mode"};
  expect_error(Code::invalid_argument, parts, [&] { harness.tail(0).push(shared, 2, Mode::twoshot); });
  expect_error(Code::invalid_argument, parts, [&] { harness.tail(0).publish(2, Mode::twoshot); });
  std::vector<RankCall> calls(4);
  for (int rank = 0; rank < 4; ++rank) {
    calls[static_cast<std::size_t>(rank)].tail = &harness.tail(rank);
    calls[static_cast<std::size_t>(rank)].call.batch = 2;
    calls[static_cast<std::size_t>(rank)].call.mode = Mode::twoshot;
  }
  expect_error(Code::invalid_argument, parts, [&] { harness.world().run(calls); });
  CallOptions options;
  options.mode = Mode::publish;
  harness.check(2, options);
}

TEST(RuntimeModes, NoSuchMode) {
  Harness harness(small_shape(1));
  std::vector<Bf16> shared(static_cast<std::size_t>(harness.shape().hidden));
  expect_error(Code::invalid_argument, {"mode = 9", "auto, front, front_poll, publish or twoshot"},
               [&] { harness.tail(0).push(shared, 1, static_cast<Mode>(9)); });
  harness.check(1, CallOptions{});
}

// A world of one rank: run by itself, in every mode.
TEST(RuntimeSingle, RunsByItself) {
  Harness harness(small_shape(1));
  for (const Variant& variant : variants()) {
    CallOptions options;
    options.mode = variant.mode;
    const auto& inputs = harness.make_inputs(variant.batch, options);
    const auto calls = harness.prepare(variant.batch, inputs, options);
    const Outputs& outputs = harness.consume({calls[0].tail->run(calls[0].call)}, options);
    harness.world().synchronize();
    EXPECT_EQ(harness.judge(variant.batch, inputs, options, outputs), "");
  }
  Call nothing;
  EXPECT_EQ(harness.tail(0).run(nothing).call, 0u);
  nothing.batch = 9;
  expect_error(Code::invalid_argument, {"batch = 9", "0 to the capacity, 8"},
               [&] { harness.tail(0).run(nothing); });
}

}  // namespace
}  // namespace moetail::testing
