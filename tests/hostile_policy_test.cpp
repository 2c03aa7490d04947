// SPDX-License-Identifier: Apache-2.0
// A policy file that is damaged, no file at all, or without end: an Error that names it, or a table within its limits; never a hang.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "moetail/policy.hpp"
#include "tests/expect_error.hpp"
#include "tests/record.hpp"

namespace moetail::testing {
namespace {

constexpr const char* kWholePolicy =
    R"({"policy_version": 1, "front_up_to": {"1": 8, "2": 8, "4": 8, "8": 4, "16": 65535}, "share_from": 16, "cuda_kernels":
      {"8": {"16": {"trigger": "after_polls", "row_block": 64, "tile": 16, "stages": 2, "warps": 16}}}})";

class HostilePolicy : public ::testing::Test {
 public:
  HostilePolicy() {
    std::string name = (std::filesystem::temp_directory_path() / "moetail-hostile-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~HostilePolicy() override { std::filesystem::remove_all(folder_); }

 protected:
  std::string path(const char* name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_;
};

RC_GTEST_FIXTURE_PROP(HostilePolicy, DamageOfAnyKind, ()) {
  static std::uint64_t tries = 0;
  std::string text = kWholePolicy;
  const int edits = *rc::gen::inRange(0, 6);
  for (int edit = 0; edit < edits; ++edit) {
    const auto at = static_cast<std::size_t>(*rc::gen::inRange(0, static_cast<int>(text.size()) + 1));
    switch (*rc::gen::inRange(0, 5)) {
      case 0: text.resize(at); break;
      case 1: text.insert(at, *rc::gen::string<std::string>()); break;
      case 2:
        text.insert(at, *rc::gen::element<std::string>("[[", "{\"", "-", "9999999999999999999", "1e308",
                                                       "null", "\\u0000", ",", "}", "0"));
        break;
      case 3: text.insert(at, text.substr(0, at)); break;
      default:
        if (at < text.size()) text[at] = *rc::gen::arbitrary<char>();
    }
  }
  std::ofstream(path("policy.json"), std::ios::binary | std::ios::trunc) << text;
  try {
    const Policy policy = Policy::load(path("policy.json"));
    for (const int limit : policy.front_up_to) RC_ASSERT(limit >= 0 && limit <= protocol::kMaxCapacity);
    RC_ASSERT(policy.share_from >= 1 && policy.share_from <= protocol::kMaxCapacity);
    RC_ASSERT(policy.version == 1);
    for (const auto& of_ranks : policy.cuda_kernels)
      for (const KernelChoice& choice : of_ranks) {
        RC_ASSERT(choice.trigger >= KernelChoice::kOwnTrigger &&
                  choice.trigger < static_cast<int>(kTriggerNames.size()));
        RC_ASSERT(choice.row_block >= 0 && choice.row_block <= 128 && choice.tile >= 0 && choice.tile <= 128);
        RC_ASSERT(choice.stages >= 0 && choice.stages <= kMaxStages && choice.warps >= 0 &&
                  choice.warps <= 16);
      }
  } catch (const Error& error) {
    RC_ASSERT(error.code() == Code::file || error.code() == Code::invalid_argument);
    RC_ASSERT(std::string(error.what()).find(path("policy.json")) != std::string::npos);
    RC_ASSERT(edits > 0);
  }
  record_fault("policy file: damaged (RapidCheck)", kHost, ++tries,
               "refused by file and key, or a table within its limits");
}

TEST_F(HostilePolicy, WhatIsNoFileOrHasNoEnd) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("loop", path("loop"));
  for (const std::string& name : {path("pipe"), path("loop"), folder_.string(), std::string("/dev/zero")})
    expect_error(Code::file, {"policy file " + name, "regular file"}, [&] { Policy::load(name); });
  std::ofstream(path("large")) << std::string((1 << 20) + 1, ' ');
  expect_error(Code::file, {"policy file " + path("large"), "1048577 bytes", "at most 1048576"},
               [&] { Policy::load(path("large")); });
  // As deep as a file may be: the parser must not be as deep.
  std::ofstream(path("deep")) << std::string(1 << 20, '[');
  expect_error(Code::file, {"not a JSON object"}, [&] { Policy::load(path("deep")); });
  constexpr std::size_t kDepth = 500'000;
  for (const char* key : {"share_from", "front_up_to"}) {
    std::ofstream(path("nested")) << fmt::format(R"({{"{}": {}{}}})", key, std::string(kDepth, '['),
                                                 std::string(kDepth, ']'));
    expect_error(Code::invalid_argument, {path("nested"), std::string(key) + " = an array"},
                 [&] { Policy::load(path("nested")); });
  }
  std::ofstream(path("whole")) << kWholePolicy;
  EXPECT_EQ(Policy::load(path("whole")).front_limit(16), 65535) << "the control";
  record_fault("policy file: a pipe, a device, a folder, a loop of links, too large, too deep", kHost, 8,
               "refused by name, at once");
}

}  // namespace
}  // namespace moetail::testing
