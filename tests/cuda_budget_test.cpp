// SPDX-License-Identifier: Apache-2.0
// Budgets: a kernel within them is silent, and each excess is one sentence with the number, the limit and what to change.
#include <gmock/gmock.h>

#include "engine/cuda/budget.hpp"
#include "tests/expect_error.hpp"

namespace moetail::testing {
namespace {

using cuda::Budget;
using cuda::budget_violations;
using cuda::KernelUsage;
using cuda::Launch;
using cuda::limits_of;
using cuda::registers_beside_successor;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

KernelUsage usage_within() {
  KernelUsage usage;
  usage.name = "front";
  usage.num_registers = 96;
  usage.static_shared_bytes = 1024;
  return usage;
}
const Launch kLaunch = {.grid = 112, .cluster = 16, .threads = 288, .shared_bytes = 60 * 1024};

TEST(CudaBudget, RegistersBesideASuccessorFollowTheAllocationRule) {
  EXPECT_EQ(registers_beside_successor(limits_of("sm_90a"), 256), 120);
  EXPECT_EQ(registers_beside_successor(limits_of("sm_90a"), 288), 96);
  EXPECT_EQ(registers_beside_successor(limits_of("sm_90a"), 512), 56);
  EXPECT_EQ(registers_beside_successor(limits_of("sm_90a"), 32), 248);
}

TEST(CudaBudget, IsSilentWithin) {
  EXPECT_THAT(budget_violations(usage_within(), kLaunch, {.max_registers = 96, .max_shared_bytes = 62 * 1024},
                                limits_of("sm_90a")),
              IsEmpty());
}

TEST(CudaBudget, NamesRegisters) {
  EXPECT_THAT(budget_violations(usage_within(), kLaunch, {.max_registers = 95}, limits_of("sm_90a")),
              ElementsAre(AllOf(HasSubstr("front"), HasSubstr("sm_90a"), HasSubstr("96 registers"),
                                HasSubstr("is 95"), HasSubstr("--maxrregcount=95"))));
}

TEST(CudaBudget, NamesRegistersThatNoBlockCanHave) {
  KernelUsage usage = usage_within();
  usage.num_registers = 129;
  Launch launch = kLaunch;
  launch.threads = 512;
  EXPECT_THAT(budget_violations(usage, launch, {}, limits_of("sm_90a")),
              ElementsAre(AllOf(HasSubstr("129 registers"), HasSubstr("512 threads can have 128"))));
  usage.num_registers = 128;
  EXPECT_THAT(budget_violations(usage, launch, {}, limits_of("sm_90a")), IsEmpty());
}

TEST(CudaBudget, NamesSpills) {
  KernelUsage usage = usage_within();
  usage.spill_store_bytes = 8;
  usage.spill_load_bytes = 16;
  EXPECT_THAT(budget_violations(usage, kLaunch, {}, limits_of("sm_90a")),
              ElementsAre(AllOf(HasSubstr("8 bytes of spill stores and 16 of spill loads"),
                                HasSubstr("budget is 0"))));
  EXPECT_THAT(budget_violations(usage, kLaunch, {.max_spill_bytes = 16}, limits_of("sm_90a")), IsEmpty());
}

TEST(CudaBudget, NamesSharedMemoryOfBudgetAndDevice) {
  EXPECT_THAT(
      budget_violations(usage_within(), kLaunch, {.max_shared_bytes = 61439}, limits_of("sm_90a")),
      ElementsAre(AllOf(HasSubstr("62464 bytes of shared memory"), HasSubstr("(1024 static, 61440 dynamic)"),
                        HasSubstr("budget is 61439"), HasSubstr("fewer weight stages"))));
  Launch launch = kLaunch;
  launch.shared_bytes = 100 * 1024;
  EXPECT_THAT(budget_violations(usage_within(), launch, {}, limits_of("sm_90a")), IsEmpty());
  EXPECT_THAT(budget_violations(usage_within(), launch, {}, limits_of("sm_120a")),
              ElementsAre(AllOf(HasSubstr("sm_120a"), HasSubstr("the device has 101376"))));
}

TEST(CudaBudget, NamesEveryExcessAtOnce) {
  KernelUsage usage = usage_within();
  usage.num_registers = 200;
  usage.spill_store_bytes = 4;
  const auto violations =
      budget_violations(usage, kLaunch, {.max_registers = 96, .max_shared_bytes = 1}, limits_of("sm_90a"));
  EXPECT_EQ(violations.size(), 3u);
  const std::string text = cuda::joined_violations(violations);
  EXPECT_THAT(text, AllOf(HasSubstr("registers"), HasSubstr("spill"), HasSubstr("shared")));
}

TEST(CudaBudget, NamesClustersThatDoNotFit) {
  EXPECT_FALSE(cuda::residency_violation("front", kLaunch, 7, 7).has_value());
  const auto violation = cuda::residency_violation("front", kLaunch, 7, 16);
  ASSERT_TRUE(violation.has_value());
  EXPECT_THAT(*violation, AllOf(HasSubstr("7 clusters of 16 blocks"), HasSubstr("16 wait for each other"),
                                HasSubstr("fewer clusters a rank")));
}

TEST(CudaBudget, KnowsItsArchitectures) {
  for (const char* arch : {"sm_90a", "sm_100a", "sm_103a", "sm_120a"})
    EXPECT_EQ(limits_of(arch).registers_per_sm, 65536);
  expect_error(Code::invalid_argument, {"arch = sm_80", "sm_90a"}, [] { limits_of("sm_80"); });
}

}  // namespace
}  // namespace moetail::testing
