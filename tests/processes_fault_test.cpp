// SPDX-License-Identifier: Apache-2.0
// Faults in calls of ranks that are processes: killed, stopped, at odds with the others, aborted; recovery, and a group made anew.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "tests/process_testing.hpp"

namespace moetail::testing {
namespace {

using protocol::Site;

constexpr auto kFaultDeadline = 300ms;

/// A team that has made its boxes and served one call, which has another deadline.
class FaultyTeam : public ::testing::Test {
 protected:
  static constexpr int kRanks = 4;

  explicit FaultyTeam(std::chrono::milliseconds deadline = kFaultDeadline) : team_(kRankProgram, kRanks) {
    join(deadline);
  }
  void join(std::chrono::milliseconds deadline) {
    expect_well(team_.join({{"deadline_ms", deadline.count()}}));
    expect_well(team_.all(boxes_order(shape_)));
    check(Mode::front);
  }
  void check(Mode mode) {
    SCOPED_TRACE(protocol::mode_name(mode));
    expect_rows(team_.all(call_order(mode, 2)), reference_rows(shape_, 2, mode));
  }
  /// Every rank but `odd` has faulted: with NaN rows, within the deadline and a second, and whoever knows it first hand waited for
  /// `odd`. Returns a first-hand fault.
  json expect_faults(const std::vector<json>& answers, int odd, Clock::time_point begin) {
    EXPECT_LT(Clock::now() - begin, kFaultDeadline + 1s);
    json first = json::object();
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == odd) continue;
      const json& answer = answers[static_cast<std::size_t>(rank)];
      SCOPED_TRACE(fmt::format("rank {}: {}", rank, brief(answer)));
      EXPECT_EQ(answer.value("code", 0), static_cast<int>(Code::fault));
      EXPECT_TRUE(answer.value("all_nan", false));
      if (!answer.contains("fault")) {
        ADD_FAILURE() << "no fault";
        continue;
      }
      const json& fault = answer.at("fault");
      EXPECT_EQ(fault.at("rank"), rank);
      if (fault.at("kind") == protocol::fault_kind_name(protocol::FaultKind::poisoned)) continue;
      EXPECT_EQ(fault.at("peer"), odd);
      first = fault;
    }
    EXPECT_FALSE(first.empty()) << "nobody knows first hand";
    return first;
  }
  std::vector<json> receive_all() {
    std::vector<json> answers;
    for (int rank = 0; rank < kRanks; ++rank) answers.push_back(team_[rank].receive());
    return answers;
  }
  static json hook(Site site, const char* act) {
    return {{"do", "hook"}, {"site", protocol::site_name(site)}, {"act", act}};
  }

  const Shape shape_ = small_shape(kRanks);
  ProcessTeam team_;
};

struct Killed {
  Mode mode;
  Site site;
  const char* waits_at;
};
std::string killed_name(const ::testing::TestParamInfo<Killed>& info) {
  return fmt::format("{}_at_{}", protocol::mode_name(info.param.mode), protocol::site_name(info.param.site));
}
class ProcessKilled : public FaultyTeam, public ::testing::WithParamInterface<Killed> {};
INSTANTIATE_TEST_SUITE_P(InACall, ProcessKilled,
                         ::testing::Values(Killed{Mode::front, Site::header_publish, "header_poll"},
                                           Killed{Mode::front, Site::latent_publish, "latent_poll"},
                                           Killed{Mode::front, Site::shared_push, "shared_poll"},
                                           Killed{Mode::front, Site::shared_poll, "consume"},
                                           Killed{Mode::front_poll, Site::rows_fill, "header_poll"},
                                           Killed{Mode::publish, Site::latent_publish, "latent_poll"},
                                           Killed{Mode::publish, Site::shared_poll, "consume"},
                                           Killed{Mode::twoshot, Site::twoshot_push, "twoshot_sum"},
                                           Killed{Mode::twoshot, Site::twoshot_sum, "gather_poll"}),
                         killed_name);

TEST_P(ProcessKilled, IsNamedBySurvivorsWhoThenMeetAReplacement) {
  const int dead = GetParam().mode == Mode::front ? 2 : 0;  // rank 0's memory holds the common copy
  expect_well({team_[dead].ask(hook(GetParam().site, "kill"))});
  const auto begin = Clock::now();
  for (int rank = 0; rank < kRanks; ++rank) team_[rank].send(call_order(GetParam().mode, 2));
  const auto answers = receive_all();
  EXPECT_EQ(answers[static_cast<std::size_t>(dead)].value("gone", 0), SIGKILL);
  const json fault = expect_faults(answers, dead, begin);
  EXPECT_EQ(fault.value("site", ""), GetParam().waits_at);
  EXPECT_THAT(fault.value("text", ""), HasSubstr(fmt::format("waited for rank {}", dead)));
  // The dead one cannot be armed again: recovery says so, at once.
  const auto recover_begin = Clock::now();
  std::vector<json> recovered;
  for (int rank = 0; rank < kRanks; ++rank)
    if (rank != dead) team_[rank].send({{"do", "recover"}});
  for (int rank = 0; rank < kRanks; ++rank)
    if (rank != dead) recovered.push_back(team_[rank].receive());
  expect_errors(
      recovered, Code::fault,
      {fmt::format("rank {} (process {}) died before it came to recover", dead, team_[dead].pid())});
  EXPECT_LT(Clock::now() - recover_begin, 5s);
  // Survivors and a new process make a new group.
  for (int rank = 0; rank < kRanks; ++rank)
    if (rank != dead) expect_well({team_[rank].ask({{"do", "leave"}})});
  team_.replace(dead);
  join(kFaultDeadline);
  check(GetParam().mode);
  EXPECT_THAT(team_.segments(), ::testing::IsEmpty());
  record_fault(fmt::format("SIGKILL of a rank at {}, {} mode", protocol::site_name(GetParam().site),
                           protocol::mode_name(GetParam().mode)),
               kProcesses, 1,
               fmt::format("{} on {} survivors within {} ms + 1 s; a replacement joins, right bits",
                           fault.value("site", ""), kRanks - 1, kFaultDeadline.count()));
}

class ProcessStopped : public FaultyTeam {
 protected:
  ProcessStopped() : FaultyTeam(2s) {}
};

TEST_F(ProcessStopped, ShorterThanTheDeadlineChangesNothing) {
  int tries = 0;
  for (const Mode mode : {Mode::front, Mode::publish, Mode::twoshot}) {
    expect_well({team_[1].ask(hook(Site::header_publish, "stop"))});
    for (int rank = 0; rank < kRanks; ++rank) team_[rank].send(call_order(mode, 2));
    ASSERT_TRUE(team_[1].wait_until_stopped());
    std::this_thread::sleep_for(400ms);
    team_[1].signal(SIGCONT);
    expect_rows(receive_all(), reference_rows(shape_, 2, mode));
    ++tries;
  }
  record_fault("SIGSTOP of a rank in a call, 0.4 s of a deadline of 2 s", kProcesses,
               static_cast<std::uint64_t>(tries), "right bits");
}

class ProcessFault : public FaultyTeam {};

TEST_F(ProcessFault, AStopLongerThanTheDeadlineIsNamedAndRecovers) {
  int tries = 0;
  for (const Mode mode : {Mode::front, Mode::publish, Mode::twoshot}) {
    SCOPED_TRACE(protocol::mode_name(mode));
    const Site site = mode == Mode::twoshot ? Site::twoshot_push : Site::latent_publish;
    expect_well({team_[3].ask(hook(site, "stop"))});
    const auto begin = Clock::now();
    for (int rank = 0; rank < kRanks; ++rank) team_[rank].send(call_order(mode, 2));
    std::vector<json> answers;
    for (int rank = 0; rank < 3; ++rank) answers.push_back(team_[rank].receive());
    answers.emplace_back();
    expect_faults(answers, 3, begin);
    // It wakes to a poisoned box, and hears from whom.
    team_[3].signal(SIGCONT);
    const json late = team_[3].receive();
    EXPECT_EQ(late.value("code", 0), static_cast<int>(Code::fault)) << brief(late);
    EXPECT_EQ(late.at("fault").at("kind"), protocol::fault_kind_name(protocol::FaultKind::poisoned));
    EXPECT_NE(late.at("fault").at("peer"), 3);
    expect_well({team_[3].ask({{"do", "hook"}, {"act", "none"}})});
    expect_well(team_.all({{"do", "recover"}}));
    check(mode);
    ++tries;
  }
  record_fault("SIGSTOP of a rank in a call, longer than the deadline", kProcesses,
               static_cast<std::uint64_t>(tries), "named on every other rank; after recover right bits");
}

TEST_F(ProcessFault, RanksAtOddsAreNamedOnAll) {
  struct Case {
    const char* field;
    json change;
  };
  const Case cases[] = {{"batch", {{"batch", 3}}}, {"layer", {{"layer", 1}}}, {"mode", {{"mode", 3}}}};
  for (const Case& one : cases) {
    SCOPED_TRACE(one.field);
    std::vector<json> orders(kRanks, call_order(Mode::front, 2));
    orders[1].update(one.change);
    const auto begin = Clock::now();
    const auto answers = team_.each(orders);
    EXPECT_LT(Clock::now() - begin, kFaultDeadline + 1s);
    int named = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      const json& answer = answers[static_cast<std::size_t>(rank)];
      SCOPED_TRACE(brief(answer));
      EXPECT_EQ(answer.value("code", 0), static_cast<int>(Code::fault));
      EXPECT_TRUE(answer.value("all_nan", false));
      const json fault = answer.value("fault", json::object());
      if (fault.value("kind", "") != protocol::fault_kind_name(protocol::FaultKind::header_mismatch))
        continue;
      ++named;
      EXPECT_EQ(fault.at("field"), one.field);
      EXPECT_TRUE(fault.at("rank") == 1 || fault.at("peer") == 1);
    }
    EXPECT_GT(named, 0);
    expect_well(team_.all({{"do", "recover"}}));
    check(Mode::front);
  }
  record_fault("batch, layer or mode differs on one rank", kProcesses, 3,
               "header mismatch, field and ranks named; after recover right bits");
}

TEST_F(ProcessFault, AMissedCallAndOneTooMany) {
  for (const int odd : {0, 2}) {
    SCOPED_TRACE(odd);
    auto begin = Clock::now();
    std::vector<json> answers(kRanks);
    for (int rank = 0; rank < kRanks; ++rank)
      if (rank != odd) team_[rank].send(call_order(Mode::front, 2));
    for (int rank = 0; rank < kRanks; ++rank)
      if (rank != odd) answers[static_cast<std::size_t>(rank)] = team_[rank].receive();
    EXPECT_EQ(expect_faults(answers, odd, begin).value("site", ""), "header_poll");
    expect_well(team_.all({{"do", "recover"}}));
    check(Mode::front);

    begin = Clock::now();
    const json alone = team_[odd].ask(call_order(Mode::publish, 2));
    EXPECT_LT(Clock::now() - begin, kFaultDeadline + 1s);
    EXPECT_EQ(alone.value("code", 0), static_cast<int>(Code::fault)) << brief(alone);
    EXPECT_EQ(alone.at("fault").at("site"), "header_poll");
    EXPECT_EQ(alone.at("fault").at("peer"), odd == 0 ? 1 : 0);
    expect_well(team_.all({{"do", "recover"}}));
    check(Mode::publish);
  }
  record_fault("a call missed by one rank, and one too many", kProcesses, 4,
               "header_poll names the rank; after recover right bits");
}

class ProcessAbort : public FaultyTeam {
 protected:
  ProcessAbort() : FaultyTeam(60s) {}
};

TEST_F(ProcessAbort, EndsThisRanksWaitAndPoisonsTheOthers) {
  const auto begin = Clock::now();
  expect_well({team_[1].ask({{"do", "abort"}, {"after_ms", 200}})});
  // Rank 3 does not call: without the abort the others would wait for a minute.
  for (int rank = 0; rank < 3; ++rank) team_[rank].send(call_order(Mode::front, 2));
  for (int rank = 0; rank < 3; ++rank) {
    const json answer = team_[rank].receive();
    SCOPED_TRACE(brief(answer));
    EXPECT_EQ(answer.value("code", 0), static_cast<int>(Code::fault));
    const json fault = answer.value("fault", json::object());
    if (rank == 1) {
      EXPECT_EQ(fault.value("kind", ""), protocol::fault_kind_name(protocol::FaultKind::aborted));
    } else {
      EXPECT_EQ(fault.value("kind", ""), protocol::fault_kind_name(protocol::FaultKind::poisoned));
      EXPECT_EQ(fault.value("peer", -1), 1);
    }
  }
  EXPECT_LT(Clock::now() - begin, 10s);
  expect_well(team_.all({{"do", "recover"}}));
  check(Mode::front);
  record_fault("TailBox::abort on one rank", kProcesses, 1,
               "its own wait ends at once, the others' by poison that names it; after recover right bits");
}

}  // namespace
}  // namespace moetail::testing
