// SPDX-License-Identifier: Apache-2.0
// Worlds whose ranks are processes: the same bits as ranks of one process, in every mode, form and number of ranks; recovery; the order
// of collective steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/io_testing.hpp"
#include "tests/process_testing.hpp"

namespace moetail::testing {
namespace {

class ProcessWorld : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ProcessWorld, ::testing::Values(1, 2, 4, 8), rank_name);

TEST_P(ProcessWorld, GivesTheBitsOfRanksInOneProcess) {
  const Shape shape = small_shape(GetParam());
  HarnessOptions two_layers;
  two_layers.layers = 2;
  Harness reference(shape, two_layers);
  ProcessTeam team(kRankProgram, GetParam());
  const auto joined = team.join();
  expect_well(joined);
  for (int rank = 0; rank < GetParam(); ++rank) {
    EXPECT_EQ(joined[static_cast<std::size_t>(rank)].at("first"), rank);
    EXPECT_EQ(joined[static_cast<std::size_t>(rank)].at("local"), 1);
    EXPECT_EQ(joined[static_cast<std::size_t>(rank)].at("ranks"), GetParam());
  }
  for (const bool own_copies : {false, true}) {
    SCOPED_TRACE(own_copies ? "a copy a rank" : "one common copy");
    json order = boxes_order(shape);
    order["own_copies"] = own_copies;
    expect_well(team.all(order));
    EXPECT_THAT(team.segments(), ::testing::IsEmpty());
    int seed = 1;
    for (const Mode mode : {Mode::front, Mode::front_poll, Mode::publish, Mode::twoshot, Mode::front}) {
      for (const Form form : kForms) {
        if (form == Form::published && mode == Mode::front) continue;
        for (const int batch : {1, 5}) {
          SCOPED_TRACE(
              fmt::format("{} {} B={}", protocol::mode_name(mode), protocol::form_name(form), batch));
          CallOptions options;
          options.mode = mode;
          options.inputs.form = form;
          options.inputs.residual = seed % 2 == 0;
          options.seed = static_cast<std::uint64_t>(++seed);
          options.layer = seed % 2;
          json call = call_order(mode, batch);
          call.update({{"form", static_cast<int>(form)},
                       {"residual", (seed - 1) % 2 == 0},
                       {"seed", seed},
                       {"layer", options.layer},
                       {"alone", seed % 3 == 0},
                       {"side_push", seed % 5 == 0},
                       {"consume_in_place", seed % 4 == 0}});
          expect_rows(team.all(call), hex_of(reference.check(batch, options)));
        }
      }
    }
  }
}

// The positive control of every comparison above: other inputs on one rank are other bits on all of them.
TEST(ProcessWorldControl, OtherInputsOnOneRankAreOtherBitsOnAll) {
  const Shape shape = small_shape(2);
  Harness reference(shape);
  ProcessTeam team(kRankProgram, 2);
  expect_well(team.join());
  expect_well(team.all(boxes_order(shape)));
  const std::string expected = hex_of(reference.check(3, {}));
  expect_rows(team.all(call_order(Mode::front, 3)), expected);
  json other = call_order(Mode::front, 3);
  other["seed"] = 2;
  const auto answers = team.each({call_order(Mode::front, 3), other});
  EXPECT_NE(answers[0].at("rows"), expected);
  EXPECT_EQ(answers[0].at("rows"), answers[1].at("rows"));
}

TEST(ProcessWorldThreads, SeveralClustersARank) {
  const Shape shape = small_shape(2);
  Harness reference(shape);
  ProcessTeam team(kRankProgram, 2);
  expect_well(team.join({{"threads", 6}}));
  expect_well(team.all(boxes_order(shape)));
  for (const Mode mode : {Mode::front, Mode::publish, Mode::twoshot, Mode::front_poll}) {
    CallOptions options;
    options.mode = mode;
    expect_rows(team.all(call_order(mode, 4)), hex_of(reference.check(4, options)));
  }
}

// Rows that are summed once a group: on a common copy by all ranks together, else by each rank's clusters.
TEST(ProcessWorldSharing, SumsARowOnceAGroup) {
  const io_testing::TempDir folder;
  const std::string policy = (folder / "policy.json").string();
  std::ofstream(policy) << kSharePolicy;
  const Shape shape = small_shape(4);
  HarnessOptions sharing;
  sharing.policy = kSharePolicy;
  Harness reference(shape, sharing);
  CallOptions options;
  options.mode = Mode::publish;
  const std::string expected = hex_of(reference.check(5, options));
  for (const int threads : {4, 8}) {
    ProcessTeam team(kRankProgram, 4);
    expect_well(team.join({{"policy_file", policy}, {"threads", threads}}));
    for (const bool own_copies : {false, true}) {
      SCOPED_TRACE(fmt::format("{} threads, {}", threads, own_copies ? "a copy a rank" : "one common copy"));
      json order = boxes_order(shape);
      order["own_copies"] = own_copies;
      expect_well(team.all(order));
      for (int i = 0; i < 4; ++i) expect_rows(team.all(call_order(Mode::publish, 5)), expected);
    }
  }
  // Who shares and who does not would wait for each other: it is refused when they join.
  ProcessTeam team(kRankProgram, 4);
  expect_errors(team.each({team.join_order(0), team.join_order(1),
                           team.join_order(2, {{"policy_file", policy}}), team.join_order(3)}),
                Code::invalid_argument, {"ranks 0 and 2 disagree", "policy (front_up_to, share_from)"});
}

TEST(ProcessWorldBoxes, SeveralFamiliesSideBySideAndRecovery) {
  const Shape shape = small_shape(4);
  Harness reference(shape);
  ProcessTeam team(kRankProgram, 4);
  expect_well(team.join());
  for (int family = 0; family < 3; ++family) {
    expect_well(team.all(boxes_order(shape)));
    const std::string expected = hex_of(reference.check(2, {}));
    expect_rows(team.all(call_order(Mode::front, 2)), expected);
    expect_well(team.all({{"do", "recover"}}));  // allowed at any time between calls
    expect_rows(team.all(call_order(Mode::front, 2)), expected);
  }
}

TEST(ProcessWorldOrder, RanksAtDifferentStepsAreNamedOnAll) {
  const Shape shape = small_shape(2);
  ProcessTeam team(kRankProgram, 2);
  expect_well(team.join());
  expect_well(team.all(boxes_order(shape)));
  expect_errors(team.each({{{"do", "recover"}}, boxes_order(shape)}), Code::call_order,
                {"ranks 0 and 1 disagree", "is at recover of boxes 1", "at make_boxes 2"});
}

TEST(ProcessWorldArguments, AreCheckedOnEveryRank) {
  ProcessTeam team(kRankProgram, 2);
  expect_errors({team[0].ask(team.join_order(2))}, Code::invalid_argument, {"rank = 2", "0 to 1"});
  expect_errors({team[0].ask(team.join_order(0, {{"ranks", 3}}))}, Code::invalid_argument,
                {"ranks = 3", "1, 2, 4, 8 or 16"});
  expect_errors({team[0].ask(team.join_order(0, {{"setup_ms", 0}}))}, Code::invalid_argument,
                {"setup_deadline (ms) = 0"});
  expect_errors({team[0].ask(team.join_order(0, {{"token", "../../etc/passwd"}}))}, Code::invalid_argument,
                {"segment name = ../../etc/passwd"});
  // One rank's own option is every rank's error.
  expect_errors(team.each({team.join_order(0), team.join_order(1, {{"threads", -1}})}),
                Code::invalid_argument, {"rank 1 of 2", "threads = -1"});
  team.renew_session();
  expect_well(team.join());
  expect_errors(team.all(boxes_order(small_shape(4))), Code::invalid_argument,
                {"rank 0 of 2", "shape.ranks = 4"});
}

TEST(ProcessWorldArguments, ASeatIsTakenOnce) {
  ProcessTeam team(kRankProgram, 2);
  const json order = team.join_order(0, {{"setup_ms", 500}});
  const auto answers = team.each({order, order});
  // Whoever comes second is refused; the first one waits for rank 1.
  const bool first_has_it = answers[0].value("code", 0) == static_cast<int>(Code::fault);
  expect_errors({answers[first_has_it ? 0 : 1]}, Code::fault, {"rank 1 did not join within 0.500 s"});
  expect_errors({answers[first_has_it ? 1 : 0]}, Code::invalid_argument,
                {"rank = 0: accepted is one that nobody has"});
}

TEST(ProcessWorldArguments, TheSessionKnowsItsNumberOfRanks) {
  ProcessTeam team(kRankProgram, 2);
  team[0].send(team.join_order(0));
  const json wrong = team[1].ask(team.join_order(1, {{"ranks", 4}}));
  expect_errors({wrong}, Code::invalid_argument, {"rank 1: ranks = 4: accepted is 2"});
  expect_errors({team[0].receive()}, Code::fault, {"rank 1: ranks = 4: accepted is 2"});
}

}  // namespace
}  // namespace moetail::testing
