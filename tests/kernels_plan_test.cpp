// SPDX-License-Identifier: Apache-2.0
// The plan without a GPU: geometry of known cases, the rules every plan keeps, and what it refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "kernels/plan.hpp"

namespace moetail::kernels {
namespace {

PlanRequest front(int ranks, int batch, int launch_ranks = 1) {
  PlanRequest request;
  request.shape.ranks = ranks;
  request.batch = batch;
  request.launch_ranks = launch_ranks;
  return request;
}

TEST(KernelPlan, K3OnEightRanksIsSevenClustersOfSixteenWithResidentWeights) {
  for (const int batch : {1, 2, 4, 8, 16, 32}) {
    const auto plan = make_plan(front(8, batch), device_shape("sm_90a"));
    EXPECT_EQ(plan.grid, 112) << plan.text();
    EXPECT_EQ(plan.cluster, 16);
    EXPECT_EQ(plan.geometry.row_block, 128);
    EXPECT_EQ(plan.geometry.stages, 1);
    EXPECT_EQ(plan.geometry.tile, batch);
    EXPECT_EQ(plan.blocks_per_sm, 2) << "a successor's block fits beside it";
  }
}

bool defines(const KernelPlan& plan, const std::string& what) {
  return std::count(plan.defines.begin(), plan.defines.end(), "MOETAIL_" + what) == 1;
}

TEST(KernelPlan, ATailAloneOnItsSmHasTwiceTheWarps) {
  for (const int batch : {1, 32, 64, 128}) {
    const auto plan = make_plan(front(8, batch), device_shape("sm_90a"));
    const int warps = batch >= 64 ? kManyWarps : kFewWarps;
    EXPECT_EQ(plan.blocks_per_sm, batch >= 64 ? 1 : 2) << plan.text();
    EXPECT_EQ(plan.threads, threads_of(warps)) << plan.text();
    EXPECT_TRUE(defines(plan, "WARPS=" + std::to_string(warps))) << plan.text();
  }
  auto push = front(8, 128);
  push.kind = Kind::push;
  EXPECT_EQ(make_plan(push, device_shape("sm_90a")).threads, threads_of(kFewWarps));
  EXPECT_EQ(make_plan(front(8, 128, 8), device_shape("sm_90a")).threads, threads_of(kFewWarps));
}

TEST(KernelPlan, IterationsHaveExchangesOfTheirOwnWhereTheyFit) {
  const auto device = device_shape("sm_90a");
  const auto exchanges = [&](int ranks, int batch, int launch_ranks = 1) {
    return make_plan(front(ranks, batch, launch_ranks), device).geometry.exchanges;
  };
  EXPECT_EQ(exchanges(8, 128), 1) << "one row block a cluster, one tile";
  EXPECT_EQ(exchanges(4, 1), 2);
  EXPECT_EQ(exchanges(1, 1), 8);
  EXPECT_EQ(exchanges(1, 128), 1) << "eight of 128 tokens do not fit";
  EXPECT_EQ(exchanges(8, 1, 8), 1) << "in loopback weights and tiles are small";
  auto tiles = front(8, 160);
  tiles.shape.capacity = 160;
  tiles.shape.latent = 1536;
  EXPECT_EQ(make_plan(tiles, device).geometry.exchanges, 1) << "two tiles share an operand";
}

TEST(KernelPlan, TheTriggerIsTheBatchsUnlessItIsAskedFor) {
  const auto device = device_shape("sm_90a");
  EXPECT_TRUE(defines(make_plan(front(8, 8), device), "TRIGGER=3"));
  EXPECT_TRUE(defines(make_plan(front(8, 16), device), "TRIGGER=4"));
  EXPECT_TRUE(defines(make_plan(front(8, 32), device), "TRIGGER=1"));
  auto wave = front(8, 8);
  wave.kind = Kind::wave;
  wave.mode = Mode::publish;
  EXPECT_TRUE(defines(make_plan(wave, device), "TRIGGER=4")) << "it has no publication";
  auto asked = front(8, 16);
  asked.choice.trigger = 0;
  EXPECT_TRUE(defines(make_plan(asked, device), "TRIGGER=0"));
  EXPECT_TRUE(defines(make_plan(front(8, 16, 8), device), "TRIGGER=2")) << "loopback has no dependent launch";
}

// A front's clusters share sums where that was faster, and nowhere that it was not asked for otherwise.
TEST(KernelPlan, AFrontOfManyTokensAndRanksSharesSums) {
  const auto device = device_shape("sm_90a");
  for (const int batch : {1, 16, 64}) EXPECT_TRUE(defines(make_plan(front(8, batch), device), "SHARES=0"));
  for (const int batch : {32, 128}) EXPECT_TRUE(defines(make_plan(front(8, batch), device), "SHARES=1"));
  EXPECT_TRUE(defines(make_plan(front(4, 32), device), "SHARES=0"));
  EXPECT_TRUE(defines(make_plan(front(8, 32, 8), device), "SHARES=0")) << "loopback";
  auto asked = front(8, 1);
  asked.shares_reduced = true;
  EXPECT_TRUE(defines(make_plan(asked, device), "SHARES=1"));
}

// Row blocks of which a second one comes behind the first one's product leave a successor room; more of them do not pay for it.
TEST(KernelPlan, TwoRowBlocksOfAFewTokensAreARingOfOneStage) {
  const auto device = device_shape("sm_90a");
  for (const int batch : {1, 8}) {
    const KernelPlan four = make_plan(front(4, batch), device);
    EXPECT_EQ(four.geometry.stages, 1);
    EXPECT_EQ(four.geometry.exchanges, 2);
    EXPECT_EQ(four.blocks_per_sm, 2);
  }
  EXPECT_EQ(make_plan(front(4, 16), device).geometry.stages, 2);
  EXPECT_EQ(make_plan(front(4, 16), device).blocks_per_sm, 1);
  EXPECT_EQ(make_plan(front(2, 1), device).blocks_per_sm, 1);
}

// Shared memory is what the kernel's own layout takes, with the warps that it gets.
TEST(KernelPlan, WarpsAreInTheLayout) {
  const auto device = device_shape("sm_90a");
  auto asked = front(8, 1);
  asked.choice.warps = kernels::kManyWarps;
  const KernelPlan plan = make_plan(asked, device);
  EXPECT_EQ(plan.geometry.warps, kernels::kManyWarps);
  EXPECT_EQ(plan.shared_bytes, kernels::make_shared_layout(
                                   asked.shape, kernels::make_cut(asked.shape, plan.geometry), plan.geometry)
                                   .bytes);
  EXPECT_GT(plan.shared_bytes, make_plan(front(8, 1), device).shared_bytes);
}

// What tune measures and a policy file asks for, each by itself.
TEST(KernelPlan, AChoiceIsWhatIsBuilt) {
  const auto device = device_shape("sm_90a");
  const auto planned = [&](int ranks, int batch, const KernelChoice& choice) {
    auto request = front(ranks, batch);
    request.choice = choice;
    return make_plan(request, device);
  };
  KernelChoice choice;
  choice.tile = 8;
  EXPECT_EQ(planned(8, 32, choice).geometry.tile, 8);
  EXPECT_EQ(planned(8, 4, choice).geometry.tile, 4) << "a limit";
  choice = {};
  choice.row_block = 64;
  EXPECT_EQ(planned(8, 1, choice).geometry.row_block, 64);
  EXPECT_EQ(planned(8, 1, choice).geometry.clusters, 7);
  EXPECT_EQ(planned(8, 1, choice).geometry.stages, 2) << "two row blocks a cluster, both resident";
  choice.stages = 2;
  EXPECT_EQ(planned(8, 1, choice).defines, planned(8, 1, {.row_block = 64}).defines);
  choice = {};
  choice.stages = 2;
  EXPECT_EQ(planned(1, 1, choice).geometry.stages, 2);
  EXPECT_EQ(planned(1, 1, {}).geometry.stages, 3);
  choice = {};
  choice.warps = kManyWarps;
  const auto many = planned(8, 16, choice);
  EXPECT_EQ(many.threads, threads_of(kManyWarps));
  EXPECT_EQ(many.blocks_per_sm, 1) << "no successor has registers beside it";
  EXPECT_TRUE(defines(many, "WARPS=16"));
  EXPECT_TRUE(defines(many, "MIN_BLOCKS=1"));
  choice.warps = kFewWarps;
  EXPECT_EQ(planned(8, 64, choice).threads, threads_of(kFewWarps));
  choice = {};
  choice.trigger = 3;
  EXPECT_TRUE(defines(planned(8, 1, choice), "TRIGGER=3"));
}

TEST(KernelPlan, StagesThatAreAskedForAreNeverFewer) {
  const auto device = device_shape("sm_90a");
  int num_plans = 0;
  for (const int ranks : {1, 2, 4, 8})
    for (const int batch : {1, 16, 128})
      for (const int row_block : {0, 32, 64})
        for (const int stages : {2, 3, 4, 8}) {
          auto request = front(ranks, batch);
          request.choice = {.row_block = row_block, .stages = stages};
          try {
            const auto plan = make_plan(request, device);
            ++num_plans;
            EXPECT_EQ(plan.geometry.stages, stages) << plan.text();
          } catch (const Error&) {  // no room for so many
          }
        }
  EXPECT_GT(num_plans, 40);
}

TEST(KernelPlan, NoChoiceChangesTheSlices) {
  const auto device = device_shape("sm_90a");
  for (const int row_block : {0, 32, 64, 128})
    for (const int tile : {0, 8, 128})
      for (const int warps : {0, 8, 16})
        for (const int batch : {1, 16, 128}) {
          auto request = front(8, batch);
          request.choice = {.row_block = row_block, .tile = tile, .warps = warps};
          const auto plan = make_plan(request, device);
          EXPECT_EQ(plan.geometry.slices, 16) << plan.text();
          EXPECT_LE(plan.shared_bytes, device.shared_per_block) << plan.text();
          EXPECT_LE(plan.grid / plan.cluster, device.resident_clusters) << plan.text();
        }
}

TEST(KernelPlan, AChoiceThatDoesNotFitIsRefusedByItsName) {
  const auto refusal = [](PlanRequest request, const char* arch = "sm_90a") -> std::string {
    try {
      return "none: " + make_plan(request, device_shape(arch)).text();
    } catch (const Error& error) {
      return error.what();
    }
  };
  const auto asked = [](const KernelChoice& choice, int ranks = 8, int batch = 16) {
    auto request = front(ranks, batch);
    request.choice = choice;
    return request;
  };
  EXPECT_EQ(refusal(asked({.trigger = 7})), "trigger = 7: accepted is 0 to 6");
  EXPECT_EQ(refusal(asked({.trigger = -2})), "trigger = -2: accepted is 0 to 6");
  EXPECT_EQ(refusal(asked({.row_block = 16})), "row_block = 16: accepted is 32, 64, 128 on sm_90a");
  EXPECT_EQ(refusal(asked({.row_block = 128}), "sm_120a"),
            "row_block = 128: accepted is 16, 32, 64 on sm_120a");
  EXPECT_EQ(refusal(asked({.tile = 12})), "tile = 12: accepted is 8, 16, 32, 64, 128");
  EXPECT_EQ(refusal(asked({.warps = 4})), "warps = 4: accepted is 8, 16");
  EXPECT_EQ(refusal(asked({.stages = -1})), "stages = -1: accepted is 1 or more");
  EXPECT_EQ(refusal(asked({.stages = 2})),
            "stages = 2: accepted is 1 to 1, the row blocks that a cluster walks over");
  EXPECT_EQ(refusal(asked({.stages = 1}, 1)),
            "stages = 1: accepted is 2 to 8, the row blocks that a cluster walks over");
  EXPECT_EQ(
      refusal(asked({.stages = 8}, 1)),
      "moetail_front at L = 3584 up to B = 16 with stages = 8: accepted is what fits 232448 bytes of shared "
      "memory a block of sm_90a");
  auto wave = asked({.trigger = 3});
  wave.kind = Kind::wave;
  wave.mode = Mode::publish;
  EXPECT_NE(refusal(wave).find("trigger = after_publication: accepted is another"), std::string::npos);
  for (const KernelChoice& choice : {KernelChoice{.row_block = 64}, KernelChoice{.tile = 8},
                                     KernelChoice{.stages = 2}, KernelChoice{.warps = 8}}) {
    auto loopback = asked(choice);
    loopback.launch_ranks = 8;
    EXPECT_NE(refusal(loopback).find("accepted is none in a launch of several ranks"), std::string::npos);
  }
}

// An untraced kernel's text and its key in the cache have nothing of the trace.
TEST(KernelPlan, OnlyATracedTailIsCompiledForIt) {
  auto request = front(8, 1);
  const auto untraced = make_plan(request, device_shape("sm_90a")).defines;
  request.traces = true;
  auto traced = make_plan(request, device_shape("sm_90a")).defines;
  EXPECT_EQ(std::erase(traced, "MOETAIL_TRACE=1"), 1u);
  EXPECT_EQ(traced, untraced);
}

TEST(KernelPlan, SixteenRanksTakeHalfRowBlocks) {
  const auto plan = make_plan(front(16, 1), device_shape("sm_90a"));
  EXPECT_EQ(plan.geometry.row_block, 64);
  EXPECT_EQ(plan.geometry.clusters, 7);
}

TEST(KernelPlan, LoopbackHoldsAClusterOfEveryRankAtOnce) {
  const auto device = device_shape("sm_90a");
  for (const int ranks : {2, 4, 8, 16})
    for (const int batch : {1, 16, 128}) {
      const auto plan = make_plan(front(ranks, batch, ranks), device);
      EXPECT_TRUE(plan.cooperative);
      EXPECT_FALSE(plan.dependent);
      EXPECT_LE(plan.grid / plan.cluster, device.resident_clusters * plan.blocks_per_sm) << plan.text();
      EXPECT_EQ(plan.grid % (plan.cluster * ranks), 0);
    }
}

TEST(KernelPlan, SliceCountDependsOnTheArchitectureAlone) {
  for (const char* arch : {"sm_90a", "sm_100a", "sm_103a", "sm_120a"}) {
    std::set<int> slices;
    for (const int ranks : {1, 8, 16})
      for (const int batch : {1, 5, 128})
        for (const Kind kind : {Kind::front, Kind::wave})
          for (const bool loopback : {false, true}) {
            auto request = front(ranks, batch, loopback ? ranks : 1);
            request.kind = kind;
            request.mode = kind == Kind::wave ? Mode::publish : Mode::front;
            slices.insert(make_plan(request, device_shape(arch)).geometry.slices);
          }
    EXPECT_EQ(slices.size(), 1u) << arch;
  }
}

TEST(KernelPlan, EveryPlanKeepsItsBudgets) {
  const Shape shapes[] = {
      Shape{}, {64, 8, 1, 1, 4, 2}, {1056, 136, 4, 6, 40, 4}, {4096, 8192, 8, 8, 256, 16}};
  for (const char* arch : {"sm_90a", "sm_100a", "sm_103a", "sm_120a"})
    for (const auto& shape : shapes)
      for (int batch = 1; batch <= shape.capacity; batch += batch < 20 ? 1 : 13) {
        PlanRequest request;
        request.shape = shape;
        request.batch = batch;
        const auto device = device_shape(arch);
        const auto plan = make_plan(request, device);
        EXPECT_LE(plan.shared_bytes, device.shared_per_block) << plan.text();
        EXPECT_GE(plan.max_batch, batch);
        EXPECT_LE(plan.geometry.clusters, make_cut(shape, plan.geometry).row_blocks);
        EXPECT_LE(plan.grid / plan.cluster, device.resident_clusters)
            << "front may spin on its own launch's blocks";
      }
}

TEST(KernelPlan, ShapesBeyondSharedMemoryAreRefusedWithWhatToChange) {
  PlanRequest request;
  request.shape.latent = 1 << 20;
  try {
    make_plan(request, device_shape("sm_90a"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unsupported);
    EXPECT_NE(std::string(error.what()).find("smaller latent size"), std::string::npos) << error.what();
  }
}

TEST(KernelPlan, RefusesWhatTheRulesExclude) {
  const auto device = device_shape("sm_90a");
  EXPECT_THROW(make_plan(front(8, 129), device), Error);
  EXPECT_THROW(make_plan(front(8, 1, 4), device), Error);
  EXPECT_THROW(make_plan(front(3, 1), device), Error);
  auto poll = front(8, 17);
  poll.mode = Mode::front_poll;
  EXPECT_THROW(make_plan(poll, device), Error);
  EXPECT_THROW(device_shape("sm_80"), Error);
}

TEST(KernelPlan, DefaultTableIsSmall) {
  EXPECT_LE(default_table(PutBy::peers).size(), 60u);
}

}  // namespace
}  // namespace moetail::kernels
