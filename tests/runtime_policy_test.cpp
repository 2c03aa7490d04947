// SPDX-License-Identifier: Apache-2.0
// The policy table and its files, and the plan that comes out of it.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "moetail/policy.hpp"
#include "tests/expect_error.hpp"
#include "tests/record.hpp"
#include "tests/variants.hpp"

namespace moetail::testing {
namespace {

class PolicyFile {
 public:
  explicit PolicyFile(const std::string& text)
      : path_((std::filesystem::temp_directory_path() / "moetail-policy-XXXXXX").string()) {
    close(mkstemp(path_.data()));
    std::ofstream(path_) << text;
  }
  ~PolicyFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Policy load(const std::string& text) {
  return Policy::load(PolicyFile(text).path());
}

TEST(RuntimePolicy, BuiltInTable) {
  const Policy policy;
  EXPECT_EQ(policy.version, 1);
  EXPECT_EQ(policy.share_from, 16);
  for (int ranks : {1, 2, 4, 8, 16}) EXPECT_EQ(policy.front_limit(ranks), ranks == 8 ? 4 : 8) << ranks;
  for (int ranks : {0, 3, 32})
    expect_error(Code::invalid_argument, {fmt::format("ranks = {}", ranks), "1, 2, 4, 8 or 16"},
                 [&] { policy.front_limit(ranks); });
}

TEST(RuntimePolicy, EveryEngineHasATableAndFilesChangeIt) {
  EXPECT_EQ(Policy::of(Engine::cpu).front_up_to, Policy{}.front_up_to);
  EXPECT_EQ(Policy::of(Engine::automatic).share_from, Policy{}.share_from);
  const Policy h200 = Policy::of(Engine::cuda);
  EXPECT_GT(h200.front_limit(8), Policy{}.front_limit(8)) << "measured ahead of publish mode there";
  const PolicyFile file(R"({"front_up_to": {"1": 3}})");
  const Policy changed = Policy::load(file.path(), Engine::cuda);
  EXPECT_EQ(changed.front_limit(1), 3);
  EXPECT_EQ(changed.front_limit(8), h200.front_limit(8)) << "a key that is absent keeps the engine's value";
  EXPECT_EQ(changed.share_from, h200.share_from);
}

TEST(RuntimePolicy, FilesChangeWhatTheyName) {
  EXPECT_EQ(load("{}").front_limit(8), 4);
  const Policy policy =
      load(R"({"policy_version": 1, "front_up_to": {"8": 0, "16": 65535}, "share_from": 1})");
  EXPECT_EQ(policy.front_limit(8), 0);
  EXPECT_EQ(policy.front_limit(16), 65535);
  EXPECT_EQ(policy.front_limit(4), 8) << "a key that is absent keeps its default";
  EXPECT_EQ(policy.share_from, 1);
}

TEST(RuntimePolicy, WrongFilesAreNamedWithTheirKey) {
  expect_error(Code::file, {"policy file /nonexistent/x.json"}, [] { Policy::load("/nonexistent/x.json"); });
  expect_error(Code::file, {"policy file"},
               [] { Policy::load(std::filesystem::temp_directory_path().string()); });
  for (const char* text :
       {"", "nonsense", "{", "[1]", "3", "\"text\"", "{\"share_from\": 3} trailing", "null"}) {
    SCOPED_TRACE(text);
    const PolicyFile file(text);
    expect_error(Code::file, {"policy file " + file.path(), "not a JSON object"},
                 [&] { Policy::load(file.path()); });
  }
  struct Case {
    const char* text;
    std::vector<std::string> parts;
  };
  for (const Case& c :
       {Case{R"({"share": 3})", {"key = share", "policy_version, front_up_to, share_from and cuda_kernels"}},
        Case{R"({"policy_version": 2})", {"policy_version = 2", "1, this build's"}},
        Case{R"({"policy_version": "1"})", {"policy_version = \"1\"", "an integer"}},
        Case{R"({"share_from": 0})", {"share_from = 0", "an integer from 1 to 65535"}},
        Case{R"({"share_from": 65536})", {"share_from = 65536", "1 to 65535"}},
        Case{R"({"share_from": -1})", {"share_from = -1"}},
        Case{R"({"share_from": 1.5})", {"share_from = 1.5", "an integer"}},
        Case{R"({"share_from": true})", {"share_from = true", "an integer"}},
        Case{R"({"share_from": 18446744073709551615})", {"share_from = 18446744073709551615", "1 to 65535"}},
        Case{R"({"front_up_to": 4})", {"front_up_to = 4", "an object"}},
        Case{R"({"front_up_to": {"3": 4}})", {"front_up_to = 3", "the keys \"1\", \"2\""}},
        Case{R"({"front_up_to": {"08": 4}})", {"front_up_to = 08"}},
        Case{R"({"front_up_to": {"8": -1}})", {"front_up_to[8] = -1", "an integer from 0 to 65535"}},
        Case{R"({"front_up_to": {"8": null}})", {"front_up_to[8] = null", "an integer"}},
        Case{R"({"cuda_kernels": 3})", {"cuda_kernels = 3", "an object"}},
        Case{R"({"cuda_kernels": {"8": []}})", {"cuda_kernels[8] = an array", "an object"}},
        Case{R"({"cuda_kernels": {"3": {}}})", {"cuda_kernels = 3", "the keys \"1\", \"2\""}},
        Case{R"({"cuda_kernels": {"8": {"3": {}}}})", {"cuda_kernels[8] = 3", "\"64\" and \"128\""}},
        Case{R"({"cuda_kernels": {"8": {"256": {}}}})", {"cuda_kernels[8] = 256"}},
        Case{R"({"cuda_kernels": {"8": {"16": "fast"}}})", {"cuda_kernels[8][16] = \"fast\"", "an object"}},
        Case{R"({"cuda_kernels": {"8": {"16": {"slices": 8}}}})",
             {"cuda_kernels[8][16]: key = slices", "trigger, row_block, tile, stages and warps"}},
        Case{R"({"cuda_kernels": {"8": {"16": {"trigger": "after_poll"}}}})",
             {"cuda_kernels[8][16].trigger = \"after_poll\"", "\"after_polls\""}},
        Case{R"({"cuda_kernels": {"8": {"16": {"trigger": 1}}}})", {"cuda_kernels[8][16].trigger = 1"}},
        Case{R"({"cuda_kernels": {"8": {"16": {"tile": 12}}}})",
             {"cuda_kernels[8][16].tile = 12", "8, 16, 32, 64, 128"}},
        Case{R"({"cuda_kernels": {"8": {"16": {"tile": null}}}})", {"cuda_kernels[8][16].tile = null"}},
        Case{R"({"cuda_kernels": {"8": {"16": {"row_block": 48}}}})",
             {"cuda_kernels[8][16].row_block = 48", "16, 32, 64, 128"}},
        Case{R"({"cuda_kernels": {"8": {"16": {"stages": 65}}}})",
             {"cuda_kernels[8][16].stages = 65", "an integer from 1 to 64"}},
        Case{R"({"cuda_kernels": {"8": {"16": {"warps": 12}}}})",
             {"cuda_kernels[8][16].warps = 12", "8, 16"}}}) {
    SCOPED_TRACE(c.text);
    const PolicyFile file(c.text);
    auto parts = c.parts;
    parts.push_back(file.path());
    expect_error(Code::invalid_argument, parts, [&] { Policy::load(file.path()); });
    WorldOptions options;
    options.policy_file = file.path();
    expect_error(Code::invalid_argument, parts, [&] { World::single(options); });
  }
  record_fault("policy file: ill-formed, or values out of range", kHost, 39, "refused by file and key");
}

TEST(RuntimePolicy, KernelsAreThoseOfTheWayTheTableServesTheirBucket) {
  const Policy policy = load(R"({"front_up_to": {"8": 16}, "share_from": 64, "cuda_kernels": {
      "8": {"16": {"trigger": "after_polls", "tile": 8}, "32": {"warps": 16}, "64": {"stages": 2}, "128": {}},
      "4": {"1": {"row_block": 64}}}})");
  KernelChoice of_16;
  of_16.trigger = 1;
  of_16.tile = 8;
  EXPECT_EQ(policy.kernel_for(8, 16, Mode::front, false), of_16);
  EXPECT_EQ(policy.kernel_for(8, 9, Mode::front, false), of_16) << "it runs the kernel of up to 16";
  EXPECT_EQ(policy.kernel_for(8, 8, Mode::front, false), KernelChoice{});
  EXPECT_EQ(policy.kernel_for(8, 16, Mode::publish, false), KernelChoice{}) << "measured for front";
  EXPECT_EQ(policy.kernel_for(8, 16, Mode::front_poll, false), KernelChoice{});
  EXPECT_EQ(policy.kernel_for(8, 17, Mode::publish, false).warps, 16);
  EXPECT_EQ(policy.kernel_for(8, 32, Mode::twoshot, false), KernelChoice{});
  EXPECT_EQ(policy.kernel_for(8, 64, Mode::publish, true).stages, 2);
  EXPECT_EQ(policy.kernel_for(8, 64, Mode::publish, false), KernelChoice{}) << "measured with shared sums";
  EXPECT_EQ(policy.kernel_for(8, 128, Mode::publish, true), KernelChoice{});
  EXPECT_EQ(policy.kernel_for(8, 129, Mode::publish, true), KernelChoice{});
  EXPECT_EQ(policy.kernel_for(4, 1, Mode::front, false).row_block, 64);
  EXPECT_EQ(policy.kernel_for(2, 1, Mode::front, false), KernelChoice{});
}

PlanRequest request(int ranks, int batch, Mode mode = Mode::automatic) {
  PlanRequest request;
  request.shape.ranks = ranks;
  request.batch = batch;
  request.mode = mode;
  return request;
}

TEST(RuntimePlan, ModeAndSharingByBatch) {
  for (int ranks : {1, 2, 4, 8, 16}) {
    const int limit = ranks == 8 ? 4 : 8;
    for (int batch : {1, 4, 5, 8, 9, 15, 16, 128}) {
      const Plan plan = make_plan(request(ranks, batch));
      EXPECT_EQ(plan.mode, batch <= limit ? Mode::front : Mode::publish) << ranks << ' ' << batch;
      EXPECT_EQ(plan.shares_reduced, batch >= 16) << batch;
    }
    // Two-shot and front_poll only when asked for, and sharing in publish mode only.
    EXPECT_EQ(make_plan(request(ranks, 16, Mode::twoshot)).mode, Mode::twoshot);
    EXPECT_FALSE(make_plan(request(ranks, 64, Mode::twoshot)).shares_reduced);
    EXPECT_EQ(make_plan(request(ranks, 16, Mode::front_poll)).mode, Mode::front_poll);
    EXPECT_FALSE(make_plan(request(ranks, 64, Mode::front)).shares_reduced);
    EXPECT_TRUE(make_plan(request(ranks, 16, Mode::publish)).shares_reduced);
  }
  Policy policy;
  policy.front_up_to[3] = 20;
  policy.share_from = 30;
  EXPECT_EQ(make_plan(request(8, 20), policy).mode, Mode::front);
  EXPECT_FALSE(make_plan(request(8, 29), policy).shares_reduced);
  EXPECT_TRUE(make_plan(request(8, 30), policy).shares_reduced);
}

TEST(RuntimePlan, ClustersByThreads) {
  PlanRequest plan_request = request(4, 1);
  for (auto [threads, clusters] : {std::pair{1, 1}, {4, 1}, {7, 1}, {8, 2}, {64, 16}}) {
    plan_request.threads = threads;
    const Plan plan = make_plan(plan_request);
    EXPECT_EQ(plan.clusters, clusters);
    EXPECT_EQ(plan.columns_per_cluster % 8, 0);
    EXPECT_GE(plan.columns_per_cluster * clusters, 7168 / 4);
  }
  plan_request.threads = 0;
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  EXPECT_EQ(make_plan(plan_request).clusters, std::max(1, cores / 4));
}

TEST(RuntimePlan, BytesByHand) {
  PlanRequest plan_request = request(8, 2);
  Plan plan = make_plan(plan_request);
  EXPECT_EQ(plan.weight_bytes, 7168u * 3584 * 2 + 8u * 3584 * 2);
  // Eight ranks: 2 * 16 rows of 3584 bf16 with a bf16 weight each, and a shared partial.
  EXPECT_EQ(plan.input_bytes, 8u * (2 * 16 * (3584 * 2 + 2) + 2 * 7168 * 2));
  EXPECT_EQ(plan.output_bytes, 8u * 2 * 7168 * 2);
  EXPECT_EQ(plan.flops, 2u * 7168 * 3584 * 2);
  EXPECT_EQ(plan.floor_bytes(), plan.weight_bytes + plan.input_bytes + plan.output_bytes);
  // Written, polled and re-armed on each rank: latents and shared shards of 8 sources, the output row, the
  // headers.
  EXPECT_EQ(plan.mailbox_bytes, 8u * 3 * (8 * 2 * 3584 * 2 + 8 * 2 * 896 * 2 + 2 * 7168 * 2 + 8 * 8));
  plan_request.weights = WeightType::fp32;
  plan_request.form = Form::permuted;
  plan_request.residual = true;
  plan = make_plan(plan_request);
  EXPECT_EQ(plan.input_bytes, 8u * (2 * 16 * (3584 * 2 + 4 + 4) + 2 * 7168 * 2) + 2 * 7168 * 2);
  plan_request.form = Form::partial;
  plan_request.residual = false;
  EXPECT_EQ(make_plan(plan_request).input_bytes, 8u * (2 * 3584 * 2 + 2 * 7168 * 2));
}

TEST(RuntimePlan, WhatCannotRunHasNoPlan) {
  expect_error(Code::invalid_argument, {"batch = 129", "0 to the capacity, 128"},
               [] { make_plan(request(8, 129)); });
  expect_error(Code::invalid_argument, {"batch = -1"}, [] { make_plan(request(8, -1)); });
  expect_error(Code::invalid_argument, {"ranks = 3"}, [] { make_plan(request(3, 1)); });
  expect_error(Code::invalid_argument, {"batch = 17", "poll_capacity = 16"},
               [] { make_plan(request(8, 17, Mode::front_poll)); });
  PlanRequest odd = request(8, 1, Mode::twoshot);
  odd.shape.latent = 72;
  expect_error(Code::invalid_argument, {"latent = 72", "8 * ranks in twoshot mode"}, [&] { make_plan(odd); });
  PlanRequest threads = request(8, 1);
  threads.threads = -2;
  expect_error(Code::invalid_argument, {"threads = -2"}, [&] { make_plan(threads); });
}

}  // namespace
}  // namespace moetail::testing
