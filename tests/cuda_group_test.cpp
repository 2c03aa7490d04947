// SPDX-License-Identifier: Apache-2.0
// The CUDA engine as the runtime drives it, on the fake device: which launches a call becomes, with which attributes and arguments, and
// what is refused before anything is launched.
#include <gmock/gmock.h>

#include <algorithm>
#include <stdexcept>

#include "engine/cuda/box_group.hpp"
#include "tests/cuda_testing.hpp"
#include "tests/expect_error.hpp"

namespace moetail::testing {
namespace {

using cuda::abi::LaunchAttributeId;
using engine::RankTail;
using engine::StreamRole;
using engine::TailCall;

class CudaGroup : public FakeCudaTest {
 protected:
  ~CudaGroup() override { expect_nothing_lives(); }

  /// A group of `ranks` ranks with boxes and streams; its kernels are empty.
  struct Ranks {
    Ranks(const cuda::ContextRef& context, int ranks, int replay_rank = -1,
          cuda::abi::Stream main_stream = nullptr) {
      cuda::GroupOptions options;
      options.main_stream = main_stream;
      options.ranks = ranks;
      options.replay_rank = replay_rank;
      options.deadline = std::chrono::seconds(3);
      options.first_deadline = std::chrono::seconds(5);
      options.context = context;
      options.cache =
          std::make_shared<cuda::KernelCache>(cuda::Compiler{[] { return std::string("1.0"); },
                                                             [this](const cuda::KernelSpec& spec) {
                                                               compiled.push_back(spec);
                                                               cuda::CompileResult result;
                                                               result.cubin.resize(4);
                                                               cuda::KernelUsage usage;
                                                               usage.name = spec.entry;
                                                               usage.num_registers = 32;
                                                               result.usage = {usage};
                                                               return result;
                                                             }},
                                              std::nullopt);
      group = std::make_unique<cuda::Group>(options);
      for (int rank = 0; rank < (replay_rank < 0 ? ranks : 1); ++rank) {
        main.push_back(group->make_stream(rank, StreamRole::main));
        side.push_back(group->make_stream(rank, StreamRole::side));
      }
      protocol::Shape shape;
      shape.ranks = ranks;
      boxes = group->make_boxes(shape);
    }

    std::vector<RankTail> tails(const TailCall& call) {
      std::vector<RankTail> result;
      for (std::size_t rank = 0; rank < boxes.size(); ++rank)
        result.push_back({boxes[rank].get(), main[rank].get(), call});
      return result;
    }

    std::vector<cuda::KernelSpec> compiled;
    std::unique_ptr<cuda::Group> group;
    std::vector<std::unique_ptr<engine::Stream>> main, side;
    std::vector<std::unique_ptr<engine::Box>> boxes;
  };

  static TailCall front_call() {
    TailCall call;
    call.mode = Mode::front;
    call.batch = 3;
    call.routed.form = Form::expanded;
    return call;
  }
  static bool has(const FakeLaunch& launch, LaunchAttributeId id) {
    for (const auto& attribute : launch.attributes)
      if (attribute.id == id) return true;
    return false;
  }
};

TEST_F(CudaGroup, LoopbackRunsTheTailsOfAllRanksInOneCooperativeLaunch) {
  const auto context = retain();
  Ranks two(context, 2);
  two.group->tail(two.tails(front_call()));
  ASSERT_EQ(fake.launches.size(), 1u);
  const FakeLaunch& launch = fake.launches.front();
  EXPECT_TRUE(has(launch, LaunchAttributeId::cooperative));
  EXPECT_FALSE(has(launch, LaunchAttributeId::programmatic_stream_serialization));
  EXPECT_EQ(launch.first_parameter, 3) << "the batch comes first";
}

TEST_F(CudaGroup, OneRankIsADependentLaunch) {
  const auto context = retain();
  Ranks one(context, 1);
  one.group->tail(one.tails(front_call()));
  ASSERT_EQ(fake.launches.size(), 1u);
  EXPECT_TRUE(has(fake.launches.front(), LaunchAttributeId::programmatic_stream_serialization));
  EXPECT_FALSE(has(fake.launches.front(), LaunchAttributeId::cooperative));
}

TEST_F(CudaGroup, WhatNoOtherRankWaitsForIsALaunchARank) {
  const auto context = retain();
  Ranks two(context, 2);
  TailCall call = front_call();
  call.mode = Mode::publish;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    two.boxes[rank]->push(*two.main[rank], call);
    two.boxes[rank]->publish(*two.main[rank], call);
  }
  two.group->tail(two.tails(call));
  for (std::size_t rank = 0; rank < 2; ++rank) two.boxes[rank]->take(*two.main[rank], call.batch, nullptr);
  ASSERT_EQ(fake.launches.size(), 7u);
  for (const FakeLaunch& launch : fake.launches) {
    EXPECT_FALSE(has(launch, LaunchAttributeId::programmatic_stream_serialization))
        << "no dependent launch in loopback";
    EXPECT_EQ(has(launch, LaunchAttributeId::cooperative), &launch == &fake.launches[4]);
  }
}

TEST_F(CudaGroup, ArgumentsAreTheRanksOwn) {
  const auto context = retain();
  Ranks two(context, 2);
  TailCall call = front_call();
  call.layer = 7;
  const auto args = static_cast<cuda::Box&>(*two.boxes[1]).args(call);
  EXPECT_EQ(args.rank, 1);
  EXPECT_EQ(args.peer[0], two.boxes[0]->view().peer[0]);
  EXPECT_EQ(args.rearm_others, args.peer[1]);
  EXPECT_EQ(args.call.layer, 7);
  EXPECT_EQ(args.deadline_ns, 3'000'000'000u);
  EXPECT_EQ(args.first_deadline_ns, 5'000'000'000u);
}

TEST_F(CudaGroup, SideWorkIsJoinedBeforeASpinningGroup) {
  const auto context = retain();
  Ranks two(context, 2);
  const int before = fake.calls["cuStreamWaitEvent"];
  two.group->tail(two.tails(front_call()));
  EXPECT_EQ(fake.calls["cuStreamWaitEvent"], before + 1);
  two.main[1]->join(*two.main[0]);
  EXPECT_EQ(fake.calls["cuStreamWaitEvent"], before + 1) << "the ranks' main streams are one";
}

TEST_F(CudaGroup, RanksOfOneLaunchAreAlike) {
  const auto context = retain();
  Ranks two(context, 2);
  auto tails = two.tails(front_call());
  two.group->prepare(tails);
  tails[1].call.routed.form = Form::permuted;
  expect_error(Code::invalid_argument, {"routed.form", "the same on all ranks"},
               [&] { two.group->prepare(tails); });
  tails = two.tails(front_call());
  tails[1].call.routed.weight_type = WeightType::fp32;
  expect_error(Code::invalid_argument, {"weights", "one type"}, [&] { two.group->prepare(tails); });
  tails = two.tails(front_call());
  static const engine::u16 row = 0;
  tails[0].call.residual = &row;
  expect_error(Code::invalid_argument, {"residual"}, [&] { two.group->prepare(tails); });
  EXPECT_TRUE(fake.launches.empty());
}

TEST_F(CudaGroup, ReplayIsOneRankWhosePeersAreScratch) {
  const auto context = retain();
  Ranks one(context, 4, 2);
  ASSERT_EQ(one.boxes.size(), 1u);
  const auto& view = one.boxes[0]->view();
  EXPECT_EQ(view.rank, 2);
  EXPECT_EQ(view.peer[0], view.peer[3]);
  EXPECT_NE(view.peer[0], view.peer[2]);
  const auto args = static_cast<cuda::Box&>(*one.boxes[0]).args(front_call());
  EXPECT_EQ(args.rearm_others, view.peer[0]) << "what others sent stays";
  one.group->tail(one.tails(front_call()));
  EXPECT_TRUE(has(fake.launches.at(0), LaunchAttributeId::programmatic_stream_serialization));
}

TEST_F(CudaGroup, ReplayFillsWhatPeersWouldHaveSent) {
  const auto context = retain();
  for (const Mode mode : {Mode::front, Mode::twoshot}) {
    Ranks one(context, 2, 1);
    const auto& view = one.boxes[0]->view();
    const auto& shape = view.layout.shape;
    const int batch = 2;
    const std::size_t latent = static_cast<std::size_t>(batch * shape.latent);
    const std::size_t hidden = static_cast<std::size_t>(batch * shape.hidden);
    // 2.0 and 3.0 in bf16; two halves of the sentinel in the peer's second row.
    std::vector<engine::u16> two(latent, 0x4000), three(latent, 0x4040), shared(hidden, 0x3F80);
    two[static_cast<std::size_t>(shape.latent)] = two[static_cast<std::size_t>(shape.latent) + 1] = 0xFFFF;
    const std::vector<engine::SentRows> sent{{two.data(), shared.data()}, {three.data(), shared.data()}};
    one.boxes[0]->fill_peers(batch, mode, sent);
    for (int slot = 0; slot < protocol::kSlots; ++slot) {
      EXPECT_EQ(*view.mine<engine::u16>(protocol::Region::shared, slot, 0, 1), 0x3F80);
      EXPECT_EQ(*view.mine<protocol::u32>(protocol::Region::shared, slot, 1, 0), protocol::kEmptyWord)
          << "its own";
      EXPECT_NE(*view.mine<protocol::u32>(protocol::Region::header, slot, 0, 0), protocol::kEmptyWord);
      if (mode == Mode::front) {
        EXPECT_EQ(*view.mine<engine::u16>(protocol::Region::latent, slot, 0, 0), 0x4000);
        EXPECT_EQ(*view.mine<protocol::u32>(protocol::Region::latent, slot, 0, 1), protocol::kCleanedWord);
        EXPECT_EQ(*view.mine<protocol::u32>(protocol::Region::latent, slot, 1, 0), protocol::kEmptyWord);
        EXPECT_EQ(*view.mine<protocol::u32>(protocol::Region::latent, slot, 0, 2), protocol::kEmptyWord)
            << "beyond B";
        continue;
      }
      EXPECT_EQ(*view.mine<engine::u16>(protocol::Region::recv, slot, 0, 0), 0x4000);
      const auto* const gathered = view.mine<engine::u16>(protocol::Region::gather, slot, 0, 0);
      EXPECT_EQ(gathered[0], 0x40A0) << "2 + 3";
      EXPECT_EQ(gathered[shape.chunk()], 0xFFFF) << "its own chunk it publishes itself";
    }
    const auto* const out = view.mine<engine::u16>(protocol::Region::out, 0, 0, 0);
    EXPECT_EQ(out[0], 0);
    EXPECT_EQ(out[shape.shard()], 0xFFFF);
  }
}

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

TEST_F(CudaGroup, OnlyAReplayedRanksPeersAreFilled) {
  const auto context = retain();
  Ranks two(context, 2);
  expect_error(Code::unsupported, {"World::replay"}, [&] { two.boxes[0]->fill_peers(1, Mode::front, {}); });
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

TEST_F(CudaGroup, HostMemoryIsRefused) {
  const auto context = retain();
  Ranks one(context, 1);
  const int on_the_host = 0;
  expect_error(Code::invalid_argument, {"shared = ", "device can address"},
               [&] { one.boxes[0]->check_address("shared", &on_the_host); });
  one.boxes[0]->check_address("shared", nullptr);
  const auto buffer = one.group->allocate(0, 100);
  one.boxes[0]->check_address("shared", buffer.get());
}

TEST_F(CudaGroup, WhatHostWorkThrowsComesOutOfSynchronize) {
  const auto context = retain();
  Ranks one(context, 1);
  bool ran = false;
  one.main[0]->call([&] { ran = true; });
  one.main[0]->call([] { throw std::runtime_error("from a host function"); });
  EXPECT_TRUE(ran);
  EXPECT_THROW(one.main[0]->synchronize(), std::runtime_error);
  one.main[0]->synchronize();
}

TEST_F(CudaGroup, BoxesAreArmedAndArmedAgain) {
  const auto context = retain();
  Ranks one(context, 1);
  auto* const first = one.boxes[0]->view().mine<protocol::u32>(protocol::Region::latent, 0, 0, 0);
  EXPECT_EQ(*first, protocol::kEmptyWord);
  *first = 5;
  one.boxes[0]->abort();
  one.boxes[0]->arm();
  EXPECT_EQ(*first, protocol::kEmptyWord);
  EXPECT_FALSE(one.boxes[0]->fault().has_value());
}

}  // namespace
}  // namespace moetail::testing
