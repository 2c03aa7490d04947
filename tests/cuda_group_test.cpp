// SPDX-License-Identifier: Apache-2.0
// The CUDA engine as the runtime drives it, on the fake device: which launches a call becomes, with which attributes and arguments, and
// what is refused before anything is launched.
#include <stdexcept>

#include "tests/cuda_group_testing.hpp"
#include "tests/expect_error.hpp"

namespace moetail::testing {
namespace {

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

TEST_F(CudaGroup, OnlyAReplayedRanksPeersAreFilled) {
  const auto context = retain();
  Ranks two(context, 2);
  expect_error(Code::unsupported, {"World::replay"}, [&] { two.boxes[0]->fill_peers(1, Mode::front, {}); });
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
