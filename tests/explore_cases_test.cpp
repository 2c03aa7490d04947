// SPDX-License-Identifier: Apache-2.0
// The explorer's small cases: every property holds in every execution. The controls, each in a program without its safeguard, are the
// tests explore_control.* of tests/CMakeLists.txt.
#include <gtest/gtest.h>

#include <random>

#include "verify/explore/buffer_machine.hpp"
#include "verify/explore/cases.hpp"
#include "verify/explore/model.hpp"
#include "verify/explore/report.hpp"

namespace moetail::explore {
namespace {

std::vector<Case> small_properties() {
  std::vector<Case> cases = all_cases();
  std::erase_if(cases, [](const Case& c) { return c.is_control() || c.is_large; });
  return cases;
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.name;
  for (char& c : name)
    if (c == '.') c = '_';
  return name;
}

class ExploreCase : public ::testing::TestWithParam<Case> {};

TEST_P(ExploreCase, HoldsInEveryExecution) {
  const Case& explored = GetParam();
  const auto program = make_program(explored.config);
  const SearchResult result = search(*program, explored.config.ordered_add, {});
  EXPECT_TRUE(is_fulfilled(explored, result))
      << (result.violation ? trace_text(explored, result) : text_line(explored, result));
  // Each tail ends in either order of its two blocks.
  EXPECT_GT(result.executions, 1);
}

// Store buffers and random steps know nothing of execution graphs: they may find what those forgot.
TEST_P(ExploreCase, HoldsInRandomInterleavings) {
  const Case& explored = GetParam();
  const auto program = make_program(explored.config);
  for (unsigned seed = 0; seed < 25; ++seed) {
    std::mt19937 random(seed);
    BufferMachine machine(
        *program, [&](int options) { return static_cast<int>(random() % static_cast<unsigned>(options)); },
        explored.config.ordered_add);
    machine.run();
    ASSERT_FALSE(machine.violation())
        << "seed " << seed << ": " << property_text(machine.violation()->property) << ": "
        << machine.violation()->text;
  }
}

INSTANTIATE_TEST_SUITE_P(Small, ExploreCase, ::testing::ValuesIn(small_properties()), case_name);

TEST(ExploreCases, EverySafeguardHasItsControls) {
  std::set<std::string> safeguards;
  for (const Case& c : all_cases()) {
    if (!c.is_control()) continue;
    safeguards.insert(c.safeguard);
    EXPECT_GE(c.config.ranks, 2) << c.name;
    EXPECT_GE(c.config.blocks, 2) << c.name;
    EXPECT_GE(c.config.calls.size(), 4u) << c.name;
  }
  EXPECT_EQ(safeguards.size(), 14u) << "13 switches, and the cut of a push into blocks";
}

TEST(ExploreReport, SearchThatIsCutShortIsNoProof) {
  const Case explored = small_properties().front();
  const auto program = make_program(explored.config);
  SearchLimits limits;
  limits.executions = 10;
  const SearchResult result = search(*program, explored.config.ordered_add, limits);
  EXPECT_FALSE(result.complete);
  EXPECT_EQ(result.executions, 10);
  EXPECT_FALSE(is_fulfilled(explored, result));
  EXPECT_NE(json_line(explored, result, "").find("\"complete\":false"), std::string::npos);
}

}  // namespace
}  // namespace moetail::explore
