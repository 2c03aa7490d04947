// SPDX-License-Identifier: Apache-2.0
// Set-up of worlds of processes when something is wrong on one rank: every rank hears the same reason, soon, and nothing is left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "tests/process_testing.hpp"

namespace moetail::testing {
namespace {

TEST(ProcessSetup, AnyFieldThatDiffersIsNamedOnEveryRank) {
  constexpr int kRanks = 4;
  ProcessTeam team(kRankProgram, kRanks);
  expect_well(team.join());
  const Shape shape = small_shape(kRanks);
  struct Case {
    const char* text;
    std::function<void(json&)> spoil;
  };
  const std::vector<Case> cases = {
      {"hidden = 96 on rank 0 and 192", [](json& order) { order["shape"]["hidden"] = 192; }},
      {"latent = 160 on rank 0 and 320", [](json& order) { order["shape"]["latent"] = 320; }},
      {"top_k = 5 on rank 0 and 6", [](json& order) { order["shape"]["top_k"] = 6; }},
      {"capacity = 8 on rank 0 and 16", [](json& order) { order["shape"]["capacity"] = 16; }},
      {"poll_capacity = 8 on rank 0 and 4", [](json& order) { order["shape"]["poll_capacity"] = 4; }},
      {"eps = 1e-05 on rank 0 and 1e-06", [](json& order) { order["shape"]["eps"] = 1e-6f; }},
      {"MOETAIL_MULTICAST = 1 on rank 0 and 0", [](json& order) { order["own_copies"] = true; }}};
  for (const Case& one : cases) {
    const int odd = 1 + static_cast<int>(&one - cases.data()) % (kRanks - 1);
    std::vector<json> orders(kRanks, boxes_order(shape));
    one.spoil(orders[static_cast<std::size_t>(odd)]);
    expect_errors(team.each(orders), Code::invalid_argument,
                  {fmt::format("ranks 0 and {} disagree", odd), fmt::format("{} on rank {}", one.text, odd)});
  }
  // The control: with nothing spoilt they agree, in the same session.
  expect_well(team.all(boxes_order(shape)));
  expect_well(team.all(call_order(Mode::front, 2)));
  EXPECT_THAT(team.segments(), ::testing::IsEmpty());
  record_fault("shape, eps or multicast differs on one rank", kProcesses, cases.size(),
               "field, ranks and values named on every rank");
}

TEST(ProcessSetup, AnotherTargetOfTheArithmeticIsNamedOnEveryRank) {
  ProcessTeam team(kRankProgram, 2, {{1, "MOETAIL_CPU_TARGET=scalar"}, {0, "MOETAIL_CPU_TARGET="}});
  const auto answers = team.join();
  expect_errors(answers, Code::invalid_argument,
                {"ranks 0 and 1 disagree", "MOETAIL_CPU_TARGET = ", "scalar on rank 1"});
  record_fault("another CPU target on one rank", kProcesses, 1, "named on every rank");
}

TEST(ProcessSetup, AFailedAllocationIsEveryRanksError) {
  constexpr int kRanks = 4;
  const Shape shape = small_shape(kRanks);
  for (int poor = 0; poor < kRanks; ++poor) {
    ProcessTeam team(kRankProgram, kRanks);
    expect_well(team.join());
    expect_well({team[poor].ask({{"do", "limit"}, {"file_bytes", 65536}})});
    const auto begin = Clock::now();
    expect_errors(
        team.all(boxes_order(shape)), Code::resource,
        {fmt::format("rank {} of 4: make_boxes 1, memory", poor), "limit of a file's size is 65536"});
    EXPECT_LT(Clock::now() - begin, 10s);
    EXPECT_THAT(team.segments(), ::testing::IsEmpty());
    // With room again they go on.
    expect_well({team[poor].ask({{"do", "limit"}, {"file_bytes", std::int64_t{1} << 40}})});
    expect_well(team.all(boxes_order(shape)));
    expect_well(team.all(call_order(Mode::publish, 2)));
  }
  record_fault("no shared memory on one rank", kProcesses, kRanks,
               "Code::resource with the rank on every rank; nothing left");
}

TEST(ProcessSetup, AMappingThatFailsIsEveryRanksError) {
  Shape large = small_shape(2);
  large.latent = 2048;
  large.top_k = 64;
  large.capacity = 256;
  large.poll_capacity = 64;
  const std::uint64_t box_bytes = protocol::make_layout(large).total_bytes;
  struct statvfs room {};
  ASSERT_EQ(statvfs("/dev/shm", &room), 0);
  if (room.f_bavail * room.f_frsize < 4 * box_bytes)
    GTEST_SKIP() << "/dev/shm has no room for boxes of " << box_bytes << " bytes";
  ProcessTeam team(kRankProgram, 2);
  expect_well(team.join());
  if (kSanitized) GTEST_SKIP() << "sanitizers need more addresses than a limit leaves them";
  expect_well({team[1].ask({{"do", "limit"}, {"more_addresses", box_bytes / 2}})});
  expect_errors(team.all(boxes_order(large)), Code::resource,
                {"rank 1 of 2: make_boxes 1", "mmap: Cannot allocate memory"});
  EXPECT_THAT(team.segments(), ::testing::IsEmpty());
  record_fault("no addresses for the mailboxes on one rank", kProcesses, 1,
               "Code::resource with the rank on every rank; nothing left");
}

TEST(ProcessSetup, ARankThatDiesIsNamedAtOnce) {
  constexpr int kRanks = 4;
  const Shape shape = small_shape(kRanks);
  for (const bool before_joining : {false, true}) {
    ProcessTeam team(kRankProgram, kRanks);
    if (before_joining) {
      for (int rank = 0; rank < kRanks; ++rank)
        if (rank != 2) team[rank].send(team.join_order(rank, {{"setup_ms", 1000}}));
    } else {
      expect_well(team.join());
    }
    team[2].signal(SIGKILL);
    EXPECT_EQ(team[2].receive().value("gone", 0), SIGKILL);
    const auto begin = Clock::now();
    std::vector<json> answers;
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == 2) continue;
      if (!before_joining) team[rank].send(boxes_order(shape));
    }
    for (int rank = 0; rank < kRanks; ++rank)
      if (rank != 2) answers.push_back(team[rank].receive());
    EXPECT_LT(Clock::now() - begin, before_joining ? 3s : 5s);
    if (before_joining)
      expect_errors(answers, Code::fault, {"rank 2 did not join within 1.000 s"});
    else
      expect_errors(answers, Code::fault,
                    {fmt::format("rank 2 (process {}) died before it came to make_boxes 1", team[2].pid())});
    // The session is over, and says so without a wait.
    if (!before_joining) expect_errors({team[0].ask(boxes_order(shape))}, Code::fault, {"rank 2 (process "});
  }
  record_fault("SIGKILL of a rank in set-up", kProcesses, 2,
               "named on every survivor, at once where it had joined");
}

TEST(ProcessSetup, AShortStopChangesNothing) {
  const Shape shape = small_shape(2);
  ProcessTeam team(kRankProgram, 2);
  team[1].signal(SIGSTOP);
  ASSERT_TRUE(team[1].wait_until_stopped());
  team[0].send(team.join_order(0));
  team[1].send(team.join_order(1));
  std::this_thread::sleep_for(300ms);
  team[1].signal(SIGCONT);
  expect_well({team[0].receive(), team[1].receive()});
  team[1].signal(SIGSTOP);
  ASSERT_TRUE(team[1].wait_until_stopped());
  team[0].send(boxes_order(shape));
  team[1].send(boxes_order(shape));
  std::this_thread::sleep_for(300ms);
  team[1].signal(SIGCONT);
  expect_well({team[0].receive(), team[1].receive()});
  expect_rows(team.all(call_order(Mode::front, 2)), reference_rows(shape, 2, Mode::front));
  record_fault("SIGSTOP in set-up, shorter than its deadline", kProcesses, 2, "nothing changes");
}

TEST(ProcessSetup, ALongStopIsNamedAtTheDeadline) {
  const Shape shape = small_shape(2);
  ProcessTeam team(kRankProgram, 2);
  expect_well(team.join({{"setup_ms", 400}}));
  team[1].signal(SIGSTOP);
  ASSERT_TRUE(team[1].wait_until_stopped());
  const auto begin = Clock::now();
  team[1].send(boxes_order(shape));
  expect_errors({team[0].ask(boxes_order(shape))}, Code::fault,
                {"rank 1 (process ", "did not come to make_boxes 1 within 0.400 s"});
  EXPECT_LT(Clock::now() - begin, 1400ms);
  team[1].signal(SIGCONT);
  // Who comes late hears the same reason, and waits for nobody.
  expect_errors({team[1].receive()}, Code::fault, {"did not come to make_boxes 1 within 0.400 s"});
  record_fault("SIGSTOP in set-up, longer than its deadline", kProcesses, 1,
               "named at the deadline, on the late rank too");
}

TEST(ProcessSetup, WhatAKilledProcessLeavesIsSweptByTheNextStart) {
  ProcessTeam team(kRankProgram, 1);
  const json made = team[0].ask({{"do", "segment"}});
  ASSERT_TRUE(made.contains("name")) << made.dump();
  const pid_t dead = team[0].pid();
  EXPECT_THAT(segments_of(dead), ::testing::ElementsAre(made.at("name").get<std::string>()));
  const ProcessSession while_it_lives = ProcessSession::create(1);
  EXPECT_EQ(segments_of(dead).size(), 1u) << "the control: what a living process has made stays";
  team[0].signal(SIGKILL);
  EXPECT_EQ(team[0].receive().value("gone", 0), SIGKILL);
  const ProcessSession next = ProcessSession::create(1);
  EXPECT_THAT(segments_of(dead), ::testing::IsEmpty());
  record_fault("SIGKILL between making a segment and taking its name away", kProcesses, 1,
               "swept by the next session");
}

TEST(ProcessSetup, NothingIsLeftWhenAllAreKilled) {
  ProcessTeam team(kRankProgram, 4);
  EXPECT_EQ(team.segments().size(), 1u) << "the session's, until all have joined";
  expect_well(team.join());
  EXPECT_THAT(team.segments(), ::testing::IsEmpty());
  expect_well(team.all(boxes_order(small_shape(4))));
  for (int rank = 0; rank < 4; ++rank) team[rank].signal(SIGKILL);
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(team[rank].receive().value("gone", 0), SIGKILL);
  EXPECT_THAT(team.segments(), ::testing::IsEmpty());
  record_fault("SIGKILL of all ranks", kProcesses, 1, "no name left in shared memory");
}

}  // namespace
}  // namespace moetail::testing
