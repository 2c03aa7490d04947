// SPDX-License-Identifier: Apache-2.0
// Calls in an order that the protocol forbids: each is refused by name, changes nothing, and the right call
// goes on.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/expect_error.hpp"
#include "tests/one_call.hpp"

namespace moetail::testing {
namespace {

class RuntimeOrder : public OneCall {};

TEST_F(RuntimeOrder, RunWithoutPush) {
  begin(Mode::publish);
  expect_error(Code::call_order, {"run", "mode = publish", "without a push", "push first"}, [&] { run(); });
  push(0);
  expect_error(Code::call_order, {"run", "without a push"}, [&] { run(); });  // rank 1 has not pushed
  push(1);
  finish();
  expect_error(Code::call_order, {"run", "without a push"}, [&] { run(); });  // a push serves one call
  push(0);
  push(1);
  finish();
  begin(Mode::twoshot, Form::published);
  expect_error(Code::call_order, {"run", "mode = twoshot", "without a push", "push first"}, [&] { run(); });
}

// A two-shot tail that is given rows pushes and publishes where nobody has; what one rank leaves to its tail another may have pushed.
TEST_F(RuntimeOrder, ATwoshotRunOfRowsNeedsNoPush) {
  for (const Form form : {Form::expanded, Form::partial}) {
    begin(Mode::twoshot, form);
    expect_error(Code::invalid_argument, {"shared = empty", "in twoshot mode"}, [&] { run(); });
    for (int rank = 0; rank < 2; ++rank) calls_[static_cast<std::size_t>(rank)].call.shared = shared(rank);
    finish();
    push(1);
    finish();
    push(0);
    push(1);
    finish();
  }
}

TEST_F(RuntimeOrder, PushTwice) {
  for (Mode mode : {Mode::publish, Mode::twoshot}) {
    begin(mode);
    push(0);
    push(1);
    expect_error(Code::call_order, {"push", "pushed already", "one push a call"}, [&] { push(1); });
    expect_error(Code::call_order, {"push", "pushed already"}, [&] {
      harness_.tail(1).push(shared(1), kBatch, Mode::automatic, harness_.world().side_stream(1));
    });
    finish();
  }
}

TEST_F(RuntimeOrder, ModeChangedWithinACall) {
  push(0);
  push(1);
  for (Mode other : {Mode::front, Mode::front_poll, Mode::twoshot}) {
    const std::string name = protocol::mode_name(other);
    const std::vector<std::string> parts = {"mode = " + name, "accepted is publish", "as this call began"};
    expect_error(Code::call_order, parts, [&] { harness_.tail(1).push(shared(1), kBatch, other); });
    if (other == Mode::twoshot)
      expect_error(Code::call_order, parts, [&] { harness_.tail(1).publish(kBatch, other); });
    if (other == Mode::front_poll)
      expect_error(Code::call_order, parts, [&] { harness_.tail(1).poll_slots(kBatch, other); });
    auto wrong = calls_;
    wrong[0].call.mode = wrong[1].call.mode = other;
    expect_error(Code::call_order, parts, [&] { harness_.world().run(wrong); });
  }
  for (RankCall& call : calls_) call.call.mode = Mode::automatic;  // leaves it as it began
  finish();
}

TEST_F(RuntimeOrder, BatchChangedWithinACall) {
  push(0);
  push(1);
  const std::vector<std::string> parts = {"batch = 1", "accepted is 2", "as this call began"};
  expect_error(Code::call_order, parts, [&] { harness_.tail(1).push(shared(1), 1, Mode::publish); });
  expect_error(Code::call_order, parts, [&] { harness_.tail(1).publish(1, Mode::publish); });
  auto wrong = calls_;
  wrong[0].call.batch = wrong[1].call.batch = 1;
  expect_error(Code::call_order, parts, [&] { harness_.world().run(wrong); });
  finish();
}

TEST_F(RuntimeOrder, AnotherTailWithinACall) {
  push(0);
  push(1);
  const std::vector<std::string> parts = {"another layer's call is open", "its run first"};
  expect_error(Code::call_order, parts, [&] { harness_.tail(1, 1).push(shared(1), kBatch, Mode::publish); });
  expect_error(Code::call_order, parts, [&] { harness_.tail(1, 1).publish(kBatch); });
  expect_error(Code::call_order, parts, [&] { harness_.tail(1, 1).poll_slots(kBatch); });
  auto wrong = calls_;
  wrong[1].tail = &harness_.tail(1, 1);
  expect_error(Code::call_order, parts, [&] { harness_.world().run(wrong); });
  finish();
}

TEST_F(RuntimeOrder, NextCallBeforeTheOutputIsConsumed) {
  push(0);
  push(1);
  const auto views = run();
  const std::vector<std::string> parts = {"output of call 1 is not consumed", "a take (or a consumer) of it"};
  expect_error(Code::call_order, parts, [&] { push(1); });
  expect_error(Code::call_order, parts, [&] { harness_.tail(1).publish(kBatch); });
  expect_error(Code::call_order, parts, [&] { harness_.tail(0, 1).poll_slots(kBatch); });
  expect_error(Code::call_order, parts, [&] { run(); });
  take_and_judge(views);
  push(0);
  push(1);
  finish();
}

TEST_F(RuntimeOrder, ViewsOfOtherCallsAndBoxes) {
  push(0);
  push(1);
  const auto first = run();
  EXPECT_EQ(first[0].call, 1u);
  EXPECT_EQ(first[1].rank, 1);
  std::vector<Bf16> rows(static_cast<std::size_t>(kBatch * harness_.shape().hidden));
  auto& boxes = harness_.boxes();
  expect_error(Code::invalid_argument, {"view: box", "rank 0's box"}, [&] { boxes[0].take(first[1], rows); });
  expect_error(Code::invalid_argument, {"view: box", "rank 0's box"}, [&] { boxes[0].consumer(first[1]); });
  expect_error(Code::invalid_argument, {"view: box"}, [&] { boxes[0].take(OutView{}, rows); });
  OutView future = first[0];
  future.call = 2;
  expect_error(Code::call_order, {"take", "view of call 2", "latest call's (1)"},
               [&] { boxes[0].take(future, rows); });
  take_and_judge(first);
  expect_error(Code::call_order, {"take", "view of call 1", "consumed already"},
               [&] { boxes[0].take(first[0], rows); });
  expect_error(Code::call_order, {"consumer", "view of call 1", "consumed already"},
               [&] { boxes[0].consumer(first[0]); });
  push(0);
  push(1);
  const auto second = run();
  expect_error(Code::call_order, {"take", "view of call 1", "latest call's (2)"},
               [&] { boxes[0].take(first[0], rows); });
  expect_error(Code::call_order, {"consumer", "view of call 1", "latest call's (2)"},
               [&] { boxes[1].consumer(first[1]); });
  take_and_judge(second);
}

TEST_F(RuntimeOrder, ACallOfNoTokensHasNothingToTake) {
  std::vector<RankCall> nothing = calls_;
  for (RankCall& call : nothing) call.call = Call{};
  const auto views = harness_.world().run(nothing);
  harness_.boxes()[0].take(views[0], {});
  harness_.boxes()[0].take(views[0], {});
  push(0);
  push(1);
  finish();
}

TEST_F(RuntimeOrder, PublishAndPollSlotsInTheOthersMode) {
  begin(Mode::front);
  push(0);
  push(1);
  expect_error(Code::call_order, {"publish", "mode = front", "publish or twoshot"},
               [&] { harness_.tail(1).publish(kBatch); });
  EXPECT_FALSE(harness_.tail(1).poll_slots(kBatch)) << "a front call has no slots";
  finish();
  expect_error(Code::call_order, {"publish", "mode = front", "publish or twoshot"},
               [&] { harness_.tail(1).publish(kBatch, Mode::front); });
  expect_error(Code::call_order, {"publish", "mode = front_poll"},
               [&] { harness_.tail(1).publish(kBatch, Mode::front_poll); });
  expect_error(Code::call_order, {"poll_slots", "mode = publish", "front_poll or front"},
               [&] { harness_.tail(1).poll_slots(kBatch, Mode::publish); });
  begin(Mode::publish);
  push(0);
  push(1);
  expect_error(Code::call_order, {"poll_slots", "mode = publish", "front_poll or front"},
               [&] { harness_.tail(1).poll_slots(kBatch); });
  finish();
}

TEST_F(RuntimeOrder, PublishedRowsHaveNoPlaceInFrontMode) {
  begin(Mode::front, Form::published);
  push(0);
  push(1);
  expect_error(Code::invalid_argument, {"routed.form = published", "rows, permuted or partial in front mode"},
               [&] { run(); });
  options_.inputs.form = Form::expanded;
  for (std::size_t rank = 0; rank < 2; ++rank)
    calls_[rank].call.routed = Routed::expanded(inputs_->arrays[rank].rows,
                                                std::span<const float>(inputs_->arrays[rank].weights_fp32));
  finish();
}

TEST_F(RuntimeOrder, AnotherSharedPartialThanThePushedOne) {
  for (Mode mode : {Mode::front, Mode::publish}) {
    begin(mode);
    push(0);
    push(1);
    auto wrong = calls_;
    wrong[1].call.shared = shared(0);
    expect_error(Code::invalid_argument, {"shared = 0x", "empty, or the buffer given to push"},
                 [&] { harness_.world().run(wrong); });
    calls_[1].call.shared = shared(1);
    finish();
  }
}

TEST_F(RuntimeOrder, FrontPollNeedsASharedPartialBesideRows) {
  begin(Mode::front_poll);
  expect_error(Code::invalid_argument, {"shared = empty", "in front_poll mode"}, [&] { run(); });
  push(0);
  push(1);
  finish();
}

}  // namespace
}  // namespace moetail::testing
