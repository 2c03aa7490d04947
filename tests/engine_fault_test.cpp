// SPDX-License-Identifier: Apache-2.0
// What comes after a fault: later calls return at once, outputs are NaN, errors surface at the next host
// call; abort; recovery.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "tests/expect_error.hpp"
#include "tests/harness.hpp"
#include "tests/hooks.hpp"
#include "tests/record.hpp"
#include "tests/variants.hpp"

namespace moetail::testing {
namespace {

using protocol::FaultKind;
using protocol::Site;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

CallOptions call_of(const Variant& variant) {
  CallOptions call;
  call.mode = variant.mode;
  return call;
}

HarnessOptions options_with(std::chrono::milliseconds deadline) {
  HarnessOptions options;
  options.policy = kSharePolicy;
  options.world.deadline = deadline;
  options.world.first_deadline = deadline;
  return options;
}

class EngineFault : public ::testing::TestWithParam<Variant> {};
INSTANTIATE_TEST_SUITE_P(Modes, EngineFault, ::testing::ValuesIn(variants()), variant_name);

// A step of many layers must not wait for as many deadlines.
TEST_P(EngineFault, AHundredCallsBehindAFaultReturnAtOnce) {
  constexpr auto kDeadline = 600ms;
  Harness harness(small_shape(2), options_with(kDeadline));
  Death death({Site::header_publish, 0});
  harness.set_hooks(&death);
  HeldStreams held(harness.world());
  const auto& inputs = harness.make_inputs(GetParam().batch, call_of(GetParam()));
  std::vector<const Outputs*> made;
  for (int i = 0; i < 101; ++i)
    made.push_back(&harness.enqueue(GetParam().batch, inputs, call_of(GetParam())));
  const auto begin = Clock::now();
  held.open();
  expect_error(Code::fault, {"header_poll", "waited for rank 0"}, [&] { harness.world().synchronize(); });
  EXPECT_LT(Clock::now() - begin, 2 * kDeadline);
  for (const Outputs* outputs : made)
    for (const auto& rows : *outputs) EXPECT_TRUE(all_nan(rows));
  EXPECT_EQ(harness.boxes()[1].status()->record.epoch, 0u) << "the first fault is the one that is kept";
  harness.set_hooks(nullptr);
  record_fault("calls behind a fault", kThreads, 100,
               "all of them end within one deadline, with NaN rows; the first fault is kept");
}

// What is enqueued below the door on a box that is poisoned already: no wait at all.
TEST_P(EngineFault, LaunchesOnAPoisonedBoxReturnAtOnce) {
  constexpr auto kDeadline = 400ms;
  Harness harness(small_shape(2), options_with(kDeadline));
  Death death({Site::header_publish, 0});
  harness.set_hooks(&death);
  const auto& inputs = harness.make_inputs(GetParam().batch, call_of(GetParam()));
  harness.enqueue(GetParam().batch, inputs, call_of(GetParam()));
  EXPECT_THROW(harness.world().synchronize(), Error);
  harness.set_hooks(nullptr);

  engine::TailCall call;
  call.mode = GetParam().mode;
  call.batch = GetParam().batch;
  call.shares_reduced = GetParam().batch >= 4;
  call.polls_slots = call.polls_shared = GetParam().mode == Mode::front_poll;
  call.shard = harness.weights().w_up.data();
  call.norm = harness.weights().gamma.data();
  const auto begin = Clock::now();
  for (int i = 0; i < 100; ++i)
    for (int rank = 0; rank < 2; ++rank) {
      auto& box = *harness.boxes()[static_cast<std::size_t>(rank)].impl();
      static_cast<cpu::Box&>(*box.box).tail(*box.rank_resources().main->stream, call);
    }
  for (int rank = 0; rank < 2; ++rank) harness.world().main_stream(rank).synchronize();
  EXPECT_LT(Clock::now() - begin, kDeadline / 2);
  record_fault("launches on a poisoned box", kThreads, 200, "return at once");
}

TEST_P(EngineFault, ErrorsSurfaceAtEveryHostCallUntilRecovery) {
  Harness harness(small_shape(2), options_with(200ms));
  const int batch = GetParam().batch;
  for (const TailBox& box : harness.boxes()) EXPECT_FALSE(box.status());
  Death death({Site::header_publish, 0});
  harness.set_hooks(&death);
  const auto& inputs = harness.make_inputs(batch, call_of(GetParam()));
  auto calls = harness.prepare(batch, inputs, call_of(GetParam()));
  const auto views = harness.world().run(calls);
  EXPECT_THROW(harness.world().synchronize(), Error);
  harness.set_hooks(nullptr);

  const PreparedTail& tail = harness.tail(1);
  const std::vector<std::string> parts = {"fault at header_poll", "rank 1, layer 1, call 1 (slot 0)",
                                          "waited for rank 0", "poisoned until World::recover"};
  const std::span<const Bf16> shared{inputs.ranks[1].shared, inputs.arrays[1].shared.size()};
  expect_error(Code::fault, parts, [&] { tail.push(shared, batch); });
  expect_error(Code::fault, parts, [&] { tail.publish(batch); });
  expect_error(Code::fault, parts, [&] { tail.poll_slots(1); });
  std::swap(calls[0], calls[1]);
  expect_error(Code::fault, parts, [&] { harness.world().run(calls); });
  expect_error(Code::fault, parts, [&] { harness.world().synchronize(); });
  expect_error(Code::fault, parts, [&] { harness.world().synchronize(); });
  ASSERT_TRUE(harness.boxes()[1].status());
  EXPECT_NE(harness.boxes()[1].status()->text().find("waited for rank 0"), std::string::npos);
  // From any thread.
  std::thread([&] { EXPECT_TRUE(harness.boxes()[1].status()); }).join();

  // The output that nobody will deliver can still be taken, as NaN, in place too.
  std::vector<Bf16> taken(static_cast<std::size_t>(batch * harness.shape().hidden), 1);
  harness.boxes()[1].take(views[1], taken);
  const OutConsumer consumer = harness.boxes()[0].consumer(views[0]);
  std::vector<Bf16> row(static_cast<std::size_t>(harness.shape().hidden), 1);
  bool there = true;
  harness.world().main_stream(0).launch([&] { there = consume_row(consumer, 0, row); });
  harness.world().main_stream(0).synchronize();
  harness.world().main_stream(1).synchronize();
  EXPECT_TRUE(all_nan(taken));
  EXPECT_TRUE(all_nan(row));
  EXPECT_FALSE(there);

  harness.world().recover(harness.boxes());
  for (const TailBox& box : harness.boxes()) EXPECT_FALSE(box.status());
  harness.world().synchronize();
  for (int i = 0; i < 4; ++i) harness.check(batch, call_of(GetParam()));
  record_fault("host calls after a fault", kThreads, 6, "each names the fault; right results after recover");
}

// The host ends a call that would wait for ever.
TEST_P(EngineFault, AbortEndsARunningCall) {
  Harness harness(small_shape(4), options_with(0ms));
  const auto reference = harness.check(GetParam().batch, call_of(GetParam()));
  const Site site = GetParam().mode == Mode::twoshot ? Site::twoshot_push : Site::latent_publish;
  Gate gate({site, 2, Where::kAny, 1});
  harness.set_hooks(&gate);
  const auto& inputs = harness.make_inputs(GetParam().batch, call_of(GetParam()));
  const Outputs& outputs = harness.enqueue(GetParam().batch, inputs, call_of(GetParam()));
  gate.wait_until_reached();
  std::thread([&] { harness.boxes()[0].abort(); }).join();
  harness.world().main_stream(0).synchronize();  // ends though rank 2 still hangs
  gate.open();
  expect_error(Code::fault, {"rank 0", "call 2 (slot 1)", "aborted by the host"},
               [&] { harness.world().synchronize(); });
  EXPECT_EQ(harness.boxes()[0].status()->record.kind, FaultKind::aborted);
  for (std::size_t rank = 1; rank < 4; ++rank) {
    const auto report = harness.boxes()[rank].status();
    ASSERT_TRUE(report) << rank;
    EXPECT_EQ(report->record.kind, FaultKind::poisoned) << report->text();
    EXPECT_EQ(report->record.peer, 0) << report->text();
    EXPECT_TRUE(all_nan(outputs[rank]));
  }
  harness.set_hooks(nullptr);
  harness.world().recover(harness.boxes());
  EXPECT_EQ(harness.check(GetParam().batch, call_of(GetParam())), reference);
  record_fault("host abort() in a running call without a deadline", kThreads, 1,
               "the call ends, its rank is named; right results after recover");
}

// No deadline means none: a long stall is no fault.
TEST_P(EngineFault, WithoutADeadlineNobodyGivesUp) {
  Harness harness(small_shape(2), options_with(0ms));
  Stall stall({Site::out_publish, 1, Where::kAny, 1}, 150ms);
  harness.set_hooks(&stall);
  for (int i = 0; i < 3; ++i) harness.check(GetParam().batch, call_of(GetParam()));
  EXPECT_GT(stall.stalls(), 0);
  harness.set_hooks(nullptr);
  record_fault("a rank delayed where there is no deadline", kThreads, 3, "right results");
}

// A fault in one group of boxes is not a fault of another one in the same world, whose calls go on; they only
// come later, because the streams are the same.
TEST(EngineFaults, AnotherBoxOfTheWorldWorksOn) {
  Harness first(small_shape(2), options_with(200ms));
  Harness second(first.world(), small_shape(2));
  CallOptions call;
  for (int rank = 0; rank < 2; ++rank) second.state(rank).deadline = 60s;
  const auto reference = second.check(2, call);
  Death death({Site::latent_publish, 1});
  first.set_hooks(&death);
  first.enqueue(2, first.make_inputs(2, call), call);
  const Outputs& outputs = second.enqueue(2, second.make_inputs(2, call), call);
  expect_error(Code::fault, {"waited for rank 1"}, [&] { first.world().synchronize(); });
  EXPECT_EQ(outputs[0], reference);
  EXPECT_EQ(outputs[1], reference);
  for (const TailBox& box : second.boxes()) EXPECT_FALSE(box.status());
  first.set_hooks(nullptr);
  first.world().recover(first.boxes());
  EXPECT_EQ(first.check(2, call), reference);
  EXPECT_EQ(second.check(2, call), reference);
  record_fault("a fault beside another box of the world", kThreads, 1,
               "the other box's calls have the right bits");
}

TEST(EngineFaults, RecoveryWantsAllBoxesOfOneGroup) {
  Harness harness(small_shape(2)), other(harness.world(), small_shape(2)), stranger(small_shape(2));
  auto& boxes = harness.boxes();
  const World& world = harness.world();
  std::vector<TailBox> few(boxes.begin(), boxes.begin() + 1);
  expect_error(Code::invalid_argument, {"boxes", "1", "2"}, [&] { world.recover(few); });
  std::vector<TailBox> twice = {boxes[0], boxes[0]};
  expect_error(Code::invalid_argument, {"boxes", "rank", "0", "each"}, [&] { world.recover(twice); });
  std::vector<TailBox> mixed = {boxes[0], other.boxes()[1]};
  expect_error(Code::invalid_argument, {"boxes", "rank 1", "one make_boxes"}, [&] { world.recover(mixed); });
  expect_error(Code::invalid_argument, {"boxes", "this world"}, [&] { world.recover(stranger.boxes()); });
  world.recover(boxes);
  harness.check(2, CallOptions{});
  record_fault("recover with some, doubled, mixed or foreign boxes", kThreads, 4,
               "refused by name; with all boxes right results");
}

// Views from before a recovery stay refused; the numbering of calls goes on.
TEST(EngineFaults, ViewsFromBeforeARecoveryAreOld) {
  Harness harness(small_shape(2));
  CallOptions call;
  const auto& inputs = harness.make_inputs(2, call);
  const auto views = harness.world().run(harness.prepare(2, inputs, call));
  harness.world().recover(harness.boxes());
  std::vector<Bf16> rows(static_cast<std::size_t>(2 * harness.shape().hidden));
  expect_error(Code::call_order, {"take", "view of call 1"},
               [&] { harness.boxes()[0].take(views[0], rows); });
  const auto later = harness.world().run(harness.prepare(2, inputs, call));
  EXPECT_EQ(later[0].call, 2u);
  EXPECT_EQ(harness.judge(2, inputs, call,
                          [&] {
                            const Outputs& outputs = harness.consume(later, call);
                            harness.world().synchronize();
                            return outputs;
                          }()),
            "");
  record_fault("a view from before a recovery", kThreads, 1, "refused by name");
}

}  // namespace
}  // namespace moetail::testing
