// SPDX-License-Identifier: Apache-2.0
// From a plan to a request: nothing of the plan is lost, and the budget follows what the plan counts on.
#include <gmock/gmock.h>

#include "engine/cuda/planned.hpp"
#include "tests/cuda_testing.hpp"

namespace moetail::testing {
namespace {

kernels::KernelPlan plan_of(int launch_ranks, kernels::Kind kind = kernels::Kind::front) {
  kernels::PlanRequest request;
  request.shape = protocol::Shape{};
  request.kind = kind;
  request.batch = 1;
  request.launch_ranks = launch_ranks;
  return kernels::make_plan(request, kernels::device_shape("sm_90a"));
}

TEST(CudaPlanned, CarriesThePlan) {
  const auto plan = plan_of(1);
  const auto request = cuda::request_of(plan, cuda::limits_of("sm_90a"));
  EXPECT_EQ(request.spec.entry, plan.entry);
  EXPECT_EQ(request.spec.source, plan.source);
  EXPECT_EQ(request.spec.defines, plan.defines);
  EXPECT_EQ(request.spec.arch, "sm_90a");
  EXPECT_EQ(request.launch.grid, static_cast<unsigned>(plan.grid));
  EXPECT_EQ(request.launch.cluster, static_cast<unsigned>(plan.cluster));
  EXPECT_EQ(request.launch.threads, static_cast<unsigned>(plan.threads));
  EXPECT_EQ(request.launch.shared_bytes, plan.shared_bytes);
  EXPECT_TRUE(request.launch.dependent);
  EXPECT_FALSE(request.launch.cooperative);
}

TEST(CudaPlanned, WhatWaitsForItselfHasToBeResident) {
  const auto plan = plan_of(1);
  EXPECT_EQ(cuda::request_of(plan, cuda::limits_of("sm_90a")).budget.min_resident_clusters,
            plan.grid / plan.cluster);
  auto push = plan;
  push.kind = kernels::Kind::push;
  EXPECT_EQ(cuda::request_of(push, cuda::limits_of("sm_90a")).budget.min_resident_clusters, 0);
}

TEST(CudaPlanned, ASuccessorNeedsRegistersOnlyWhereItMayStartEarly) {
  auto plan = plan_of(1);
  plan.blocks_per_sm = 2;
  const auto limits = cuda::limits_of("sm_90a");
  EXPECT_EQ(cuda::request_of(plan, limits).budget.max_registers,
            cuda::registers_beside_successor(limits, plan.threads));
  EXPECT_EQ(cuda::request_of(plan, limits).budget.max_spill_bytes, 0u);
  plan.blocks_per_sm = 1;
  EXPECT_FALSE(cuda::request_of(plan, limits).budget.max_registers.has_value());
  plan.blocks_per_sm = 2;
  plan.dependent = false;
  EXPECT_FALSE(cuda::request_of(plan, limits).budget.max_registers.has_value());
}

TEST(CudaPlanned, LoopbackIsCooperative) {
  const auto request = cuda::request_of(plan_of(8), cuda::limits_of("sm_90a"));
  EXPECT_TRUE(request.launch.cooperative);
  EXPECT_FALSE(request.launch.dependent);
}

using CudaPlannedOnDevice = FakeCudaTest;

TEST_F(CudaPlannedOnDevice, AsksTheDeviceForItsClusters) {
  fake.device.resident_clusters = 5;
  const auto shape = cuda::device_shape_of(retain());
  EXPECT_EQ(shape.arch, "sm_90a");
  EXPECT_EQ(shape.num_sms, 132);
  EXPECT_EQ(shape.resident_clusters, 5);
  EXPECT_EQ(shape.shared_per_block, std::size_t{227} << 10);
  expect_nothing_lives();
}

}  // namespace
}  // namespace moetail::testing
