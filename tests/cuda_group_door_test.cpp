// SPDX-License-Identifier: Apache-2.0
// What a user of the door sees of the CUDA engine, on a fake device: captures, streams of the caller's, the arguments of a user's kernels, early
// waves, and kernels that are made side by side.
#include <algorithm>

#include "tests/cuda_group_testing.hpp"
#include "tests/expect_error.hpp"

namespace moetail::testing {
namespace {

TEST_F(CudaGroup, AUsersKernelGetsWhatOurOwnHave) {
  const auto context = retain();
  Ranks two(context, 2);
  TailCall call = front_call();
  call.layer = 9;
  two.group->tail(two.tails(call));
  auto& box = static_cast<cuda::Box&>(*two.boxes[1]);
  const auto link = box.link();
  const auto args = box.args(call);
  EXPECT_EQ(link.fault, args.fault);
  EXPECT_EQ(link.rearm_others, args.rearm_others);
  EXPECT_EQ(link.deadline_ns, args.deadline_ns);
  EXPECT_EQ(link.first_deadline_ns, args.first_deadline_ns);
  EXPECT_EQ(link.layer, 9);
  EXPECT_FALSE(link.puts_own);
  Ranks one(context, 4, 2);
  EXPECT_TRUE(one.boxes[0]->link().puts_own) << "as a multicast put costs on the wire";
  EXPECT_EQ(one.boxes[0]->link().rearm_others, one.boxes[0]->view().peer[0]);
}

TEST_F(CudaGroup, AReplayedRankPutsOnceOrToEveryRank) {
  const auto context = retain();
  const auto put_of = [](const Ranks& ranks) {
    for (const std::string& define : ranks.compiled.back().defines)
      if (define.rfind("MOETAIL_PUT=", 0) == 0) return define;
    return std::string();
  };
  for (const bool unicast : {false, true}) {
    Ranks one(context, 4, 2, nullptr, unicast);
    one.group->tail(one.tails(front_call()));
    EXPECT_EQ(one.boxes[0]->link().puts_own, !unicast);
    EXPECT_EQ(put_of(one), unicast ? "MOETAIL_PUT=0" : "MOETAIL_PUT=2");
  }
}

TEST_F(CudaGroup, WhatThePolicyAsksOfAKernelIsBuiltWhereARankIsAlone) {
  const auto context = retain();
  TailCall asked = front_call();
  asked.batch = 32;
  asked.kernel = {.trigger = 3, .tile = 8};
  TailCall own = asked;
  own.kernel = {};
  const auto tile_and_trigger = [](const cuda::KernelSpec& spec) {
    std::string text = spec.entry;
    for (const std::string& define : spec.defines)
      if (define.rfind("MOETAIL_TILE=", 0) == 0 || define.rfind("MOETAIL_TRIGGER=", 0) == 0)
        text += " " + define.substr(8);
    return text;
  };
  Ranks one(context, 8, 2);
  one.group->tail(one.tails(asked));
  EXPECT_EQ(tile_and_trigger(one.compiled.back()), "moetail_front TILE=8 TRIGGER=3");
  one.group->tail(one.tails(own));
  EXPECT_EQ(one.compiled.size(), 2u) << "another kernel of the same call";
  EXPECT_EQ(tile_and_trigger(one.compiled.back()), "moetail_front TILE=32 TRIGGER=1");
  one.group->tail(one.tails(asked));
  EXPECT_EQ(one.compiled.size(), 2u);
  // All ranks on one device: their plan is another, and the same for all.
  Ranks both(context, 2);
  both.group->tail(both.tails(asked));
  both.group->tail(both.tails(own));
  ASSERT_EQ(both.compiled.size(), 1u);
  EXPECT_EQ(tile_and_trigger(both.compiled.back()), "moetail_front TILE=16 TRIGGER=2");
}

TEST_F(CudaGroup, AChoiceThatDoesNotFitIsTheCallsError) {
  const auto context = retain();
  Ranks one(context, 8, 2);
  TailCall call = front_call();
  call.kernel.stages = 2;
  expect_error(Code::invalid_argument, {"stages = 2", "1 to 1"}, [&] { one.group->tail(one.tails(call)); });
  call.kernel = {};
  one.group->tail(one.tails(call));
  EXPECT_EQ(one.compiled.size(), 1u);
}

TEST_F(CudaGroup, FinalizedRowsAreOneLaunchThatWaitsForItsPredecessor) {
  const auto context = retain();
  Ranks one(context, 1);
  fake.num_parameters = 2;
  PublishTargets targets;
  targets.box = one.boxes[0]->view();
  targets.batch = 2;
  static const engine::u16 rows = 0;
  one.boxes[0]->publish_rows(*one.main[0], targets, &rows);
  ASSERT_EQ(fake.launches.size(), 1u);
  const FakeLaunch& launch = fake.launches.front();
  EXPECT_TRUE(has(launch, LaunchAttributeId::programmatic_stream_serialization));
  EXPECT_EQ(launch.config.grid_x, 4u) << "2 rows of 448 lines, 256 threads a block";
  targets.batch = 128;
  one.boxes[0]->publish_rows(*one.main[0], targets, &rows);
  EXPECT_EQ(fake.launches.back().config.grid_x, 224u);
  Ranks two(context, 2);
  two.boxes[0]->publish_rows(*two.main[0], targets, &rows);
  EXPECT_FALSE(has(fake.launches.back(), LaunchAttributeId::programmatic_stream_serialization));
  fake.num_parameters = 1;
}

TEST_F(CudaGroup, AnEarlyWaveIsAKernelOfItsOwnWhereThereAreDependentLaunches) {
  const auto context = retain();
  TailCall call = front_call();
  call.mode = Mode::publish;
  call.early = true;
  const auto early = [](const Ranks& ranks) {
    const auto& defines = ranks.compiled.back().defines;
    return std::find(defines.begin(), defines.end(), "MOETAIL_EARLY=1") != defines.end();
  };
  Ranks one(context, 1);
  one.group->tail(one.tails(call));
  EXPECT_TRUE(early(one));
  call.early = false;
  one.group->tail(one.tails(call));
  EXPECT_FALSE(early(one));
  EXPECT_EQ(one.compiled.size(), 2u);
  Ranks two(context, 2);
  call.early = true;
  two.group->tail(two.tails(call));
  EXPECT_FALSE(early(two)) << "loopback waits for what is before it";
}

TEST_F(CudaGroup, TheCallersStreamIsUsedAndStaysTheCallers) {
  const auto context = retain();
  const cuda::Stream own(context);
  {
    Ranks two(context, 2, -1, own.handle());
    EXPECT_EQ(two.main[0]->native(), own.handle());
    EXPECT_EQ(two.main[1]->native(), own.handle());
    EXPECT_NE(two.side[0]->native(), own.handle());
    two.group->tail(two.tails(front_call()));
    EXPECT_EQ(fake.launches.back().config.stream, own.handle());
  }
  EXPECT_EQ(fake.live["stream"], 1);
}

TEST_F(CudaGroup, HostWorkIsNoPartOfACapture) {
  const auto context = retain();
  Ranks one(context, 1);
  fake.capturing = true;
  EXPECT_TRUE(one.main[0]->is_capturing());
  expect_error(Code::call_order, {"rank0.main", "capturing", "host work"}, [&] { one.main[0]->call([] {}); });
  fake.capturing = false;
}

TEST_F(CudaGroup, APushThatIsNotWarmIsRefusedBeforeItForks) {
  const auto context = retain();
  Ranks one(context, 1);
  TailCall call = front_call();
  call.mode = Mode::publish;
  fake.capturing = true;
  expect_error(Code::call_order, {"moetail_push", "capturing"},
               [&] { one.boxes[0]->prepare_push(*one.main[0], call); });
  fake.capturing = false;
  one.boxes[0]->prepare_push(*one.main[0], call);
  EXPECT_TRUE(fake.launches.empty());
}

TEST_F(CudaGroup, UnderCaptureACallThatIsNotWarmIsRefusedAsAWhole) {
  const auto context = retain();
  Ranks one(context, 1);
  fake.capturing = true;
  expect_error(Code::call_order, {"capturing", "warm-up"},
               [&] { one.group->prepare(one.tails(front_call())); });
  fake.capturing = false;
  one.group->prepare(one.tails(front_call()));
  fake.capturing = true;
  one.group->prepare(one.tails(front_call()));
  one.group->tail(one.tails(front_call()));
  EXPECT_EQ(fake.launches.size(), 1u);
}

TEST_F(CudaGroup, AWarmCallIsAllowedUnderCapture) {
  const auto context = retain();
  Ranks one(context, 1);
  TailCall call = front_call();
  call.mode = Mode::publish;
  EXPECT_EQ(one.boxes[0]->warm_up(call), 4) << "take, push, publish, wave";
  fake.capturing = true;
  one.boxes[0]->push(*one.main[0], call);
  one.boxes[0]->publish(*one.main[0], call);
  one.group->tail(one.tails(call));
  one.boxes[0]->take(*one.main[0], call.batch, nullptr);
  EXPECT_EQ(fake.launches.size(), 4u);
  fake.capturing = false;
}

TEST_F(CudaGroup, ATwoshotCallThatWasNotPushedIsOneLaunch) {
  const auto context = retain();
  Ranks one(context, 1);
  TailCall call = front_call();
  call.mode = Mode::twoshot;
  EXPECT_EQ(one.boxes[0]->warm_up(call), 5) << "take, push, publish, wave, and the tail that does it all";
  fake.capturing = true;
  call.in_one_launch = true;
  ASSERT_TRUE(one.group->has_one_launch());
  one.group->prepare(one.tails(call));
  one.group->tail(one.tails(call));
  EXPECT_EQ(fake.launches.size(), 1u);
  fake.capturing = false;
  const auto whole = std::ranges::find(one.compiled, "moetail_front", &cuda::KernelSpec::entry);
  ASSERT_NE(whole, one.compiled.end());
  for (const char* define : {"MOETAIL_MODE=4", "MOETAIL_PUBLISHES=1", "MOETAIL_PUSHES=1", "MOETAIL_FORM=0"})
    EXPECT_NE(std::ranges::find(whole->defines, define), whole->defines.end()) << define;
  const auto wave = std::ranges::find(one.compiled, "moetail_wave", &cuda::KernelSpec::entry);
  ASSERT_NE(wave, one.compiled.end());
  for (const char* define : {"MOETAIL_PUBLISHES=0", "MOETAIL_PUSHES=0"})
    EXPECT_NE(std::ranges::find(wave->defines, define), wave->defines.end()) << define;
}

TEST_F(CudaGroup, RanksOfOneLaunchPushAllOrNone) {
  const auto context = retain();
  Ranks two(context, 2);
  TailCall call = front_call();
  call.mode = Mode::twoshot;
  auto tails = two.tails(call);
  tails[1].call.in_one_launch = true;
  expect_error(Code::call_order, {"run", "on some ranks only", "on none"},
               [&] { two.group->prepare(tails); });
  EXPECT_TRUE(two.compiled.empty());
  tails[0].call.in_one_launch = true;
  two.group->prepare(tails);
  two.group->tail(tails);
  EXPECT_EQ(fake.launches.size(), 1u);
}

TEST_F(CudaGroup, KernelsOfACallAreMadeOnceAndAnErrorOfOneIsTheCalls) {
  const auto context = retain();
  Ranks one(context, 1);
  TailCall call = front_call();
  call.mode = Mode::twoshot;
  one.group->prepare(one.tails(call));
  EXPECT_EQ(one.compiled.size(), 3u) << "wave, take and publish; nothing has been pushed";
  one.group->prepare(one.tails(call));
  EXPECT_EQ(one.compiled.size(), 3u);
  fake.failures["cuModuleLoadData"] = cuda::abi::Result::out_of_memory;
  call.batch = 16;
  expect_error(Code::resource, {"cuModuleLoadData"}, [&] { one.group->prepare(one.tails(call)); });
  fake.failures.clear();
  one.group->prepare(one.tails(call));
  EXPECT_EQ(one.compiled.size(), 6u) << "what was compiled before the error is still there";
}

}  // namespace
}  // namespace moetail::testing
