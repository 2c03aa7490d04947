// SPDX-License-Identifier: Apache-2.0
// The C door as a library: what it exports, the probe, the plan, names and error texts.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "moetail/policy.hpp"
#include "tests/c_api_testing.hpp"

namespace moetail::testing {
namespace {

using Names = std::set<std::string>;

std::string file_text(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

Names all_matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  Names names;
  for (std::sregex_iterator match(text.begin(), text.end(), regex), end; match != end; ++match)
    names.insert((*match)[1]);
  return names;
}

Names declared_functions() {
  return all_matches(file_text(std::string(MOETAIL_SOURCE_DIR) + "/include/moetail/moetail.h"),
                     R"(MOETAIL_API\s[^;()]*\b(moetail_\w+)\()");
}

TEST(CApiLibrary, TheListHoldsEveryDeclaredFunction) {
  const Names declared = declared_functions();
  EXPECT_GT(declared.size(), 30u);
  EXPECT_EQ(all_matches(file_text(std::string(MOETAIL_SOURCE_DIR) + "/src/runtime/moetail.map"),
                        R"((moetail_\w+);)"),
            declared);
}

TEST(CApiLibrary, TheSharedLibraryExportsNothingElse) {
  const std::string command = std::string("nm -D --defined-only '") + MOETAIL_C_LIBRARY + "'";
  std::FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string symbols;
  char piece[4096];
  for (std::size_t count; (count = std::fread(piece, 1, sizeof piece, pipe)) > 0;)
    symbols.append(piece, count);
  ASSERT_EQ(pclose(pipe), 0) << command;
  Names exported = all_matches(symbols, R"([0-9a-f]+ \w (\S+)\n)");
  EXPECT_EQ(exported.erase("MOETAIL_0"), 1u) << "the version node itself";
  Names expected;
  for (const std::string& name : declared_functions()) expected.insert(name + "@@MOETAIL_0");
  EXPECT_EQ(exported, expected);
}

TEST(CApiLibrary, PlanIsTheCppDoors) {
  moetail_shape shape = MOETAIL_SHAPE_INIT;
  moetail_plan_request request = MOETAIL_PLAN_REQUEST_INIT;
  request.batch = 32;
  request.residual = 1;
  request.threads = 16;
  moetail_plan plan = MOETAIL_PLAN_INIT;
  ASSERT_OK(moetail_make_plan(&shape, &request, &plan));
  PlanRequest same;
  same.batch = 32;
  same.residual = true;
  same.threads = 16;
  same.weights = WeightType::bf16;
  const Plan expected = make_plan(same);
  EXPECT_EQ(plan.mode, static_cast<int>(expected.mode));
  EXPECT_EQ(plan.shares_reduced, 1);
  EXPECT_EQ(plan.clusters, expected.clusters);
  EXPECT_EQ(plan.columns_per_cluster, expected.columns_per_cluster);
  EXPECT_EQ(plan.slices, expected.slices);
  EXPECT_EQ(plan.weight_bytes, expected.weight_bytes);
  EXPECT_EQ(plan.input_bytes, expected.input_bytes);
  EXPECT_EQ(plan.output_bytes, expected.output_bytes);
  EXPECT_EQ(plan.mailbox_bytes, expected.mailbox_bytes);
  EXPECT_EQ(plan.flops, expected.flops);
}

TEST(CApiLibrary, ProbeSaysWhyNot) {
  moetail_shape shape = MOETAIL_SHAPE_INIT;
  EXPECT_OK(moetail_supports(MOETAIL_ENGINE_AUTO, nullptr));
  EXPECT_OK(moetail_supports(MOETAIL_ENGINE_CPU, &shape));
  setenv("MOETAIL_CUDA_DRIVER", "libmoetail-no-such-driver.so.1", 1);
  expect_refused(moetail_supports(MOETAIL_ENGINE_CUDA, nullptr), MOETAIL_UNSUPPORTED,
                 {"cuda", "accepted is"});
  shape.ranks = 3;
  expect_refused(moetail_supports(MOETAIL_ENGINE_CPU, &shape), MOETAIL_INVALID_ARGUMENT,
                 {"ranks = 3", "1, 2, 4"});
  expect_refused(moetail_supports(9, nullptr), MOETAIL_INVALID_ARGUMENT, {"engine = 9"});
}

TEST(CApiLibrary, NamesWhatItKnows) {
  const Names project = all_matches(file_text(std::string(MOETAIL_SOURCE_DIR) + "/CMakeLists.txt"),
                                    R"(project\(moetail VERSION ([0-9.]+))");
  EXPECT_EQ(project, Names{moetail_version()});
  EXPECT_STREQ(moetail_status_name(MOETAIL_CALL_ORDER), "call order");
  EXPECT_STREQ(moetail_status_name(77), "?");
  EXPECT_STREQ(moetail_site_name(7), "latent_poll");
  EXPECT_STREQ(moetail_site_name(-1), "?");
  EXPECT_STREQ(moetail_mode_name(-1), "?");
}

TEST(CApiLibrary, FilesAndLongTexts) {
  moetail_world_options options = MOETAIL_WORLD_OPTIONS_INIT;
  const std::string missing = "no/such/policy.json", endless(5000, 'x');
  moetail_world* world = nullptr;
  options.policy_file = missing.c_str();
  expect_refused(moetail_world_create_single(&options, &world), MOETAIL_FILE, {missing});
  options.policy_file = endless.c_str();
  expect_refused(moetail_world_create_single(&options, &world), MOETAIL_FILE, {"policy file xxx"});
  const std::string text = moetail_last_error();
  EXPECT_EQ(text.size(), 2047u);
  EXPECT_EQ(text.substr(text.size() - 4), "x...");
}

}  // namespace
}  // namespace moetail::testing
