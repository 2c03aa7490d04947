// SPDX-License-Identifier: Apache-2.0
// Sizes that no sane caller gives: shapes of any integers, counts at the end of 64 bits, a residual that the output replaces. No product
// wraps around, nothing is read beyond what was given, and what can be served is right.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <climits>
#include <limits>

#include "moetail/policy.hpp"
#include "tests/c_api_testing.hpp"
#include "tests/expect_error.hpp"
#include "tests/harness.hpp"
#include "tests/record.hpp"
#include "tests/variants.hpp"

namespace moetail::testing {
namespace {

using protocol::ShapeRule;
using Wide = long double;  // exact up to 2^64, and what is beyond does not wrap around

/// Small and large numbers of both signs, those at the end of a rule and of a type before all others.
int absurd_int() {
  return *rc::gen::weightedOneOf<int>(
      {{3, rc::gen::arbitrary<int>()},
       {3, rc::gen::element(INT_MIN, -1, 0, 1, 8, 128, 65535, 65536, 1 << 20, (1 << 20) + 8, 1 << 30,
                            INT_MAX - 7, INT_MAX)},
       {2, rc::gen::map(rc::gen::inRange(0, 1 << 17), [](int lines) { return 8 * lines; })},
       {1, rc::gen::inRange(0, 70)}});
}

/// Within the rules, but for some fields.
Shape absurd_shape() {
  Shape shape;
  shape.ranks = *rc::gen::element(1, 2, 4, 8, 16);
  shape.hidden = 8 * shape.ranks * *rc::gen::inRange(1, protocol::kMaxColumns / (8 * shape.ranks) + 1);
  shape.latent = 8 * *rc::gen::inRange(1, protocol::kMaxColumns / 8 + 1);
  shape.top_k = *rc::gen::inRange(1, protocol::kMaxTopK + 1);
  shape.capacity = *rc::gen::inRange(1, protocol::kMaxCapacity + 1);
  shape.poll_capacity = *rc::gen::inRange(0, shape.capacity + 1);
  for (int Shape::*field : {&Shape::ranks, &Shape::hidden, &Shape::latent, &Shape::top_k, &Shape::capacity,
                            &Shape::poll_capacity})
    if (*rc::gen::inRange(0, 8) == 0) shape.*field = absurd_int();
  shape.eps = *rc::gen::weightedElement<float>({{9, 0.0f},
                                                {9, 1.0f},
                                                {1, -1.0f},
                                                {1, std::numeric_limits<float>::infinity()},
                                                {1, std::numeric_limits<float>::quiet_NaN()}});
  return shape;
}

/// The bytes of all regions, in numbers that cannot wrap around.
Wide bytes_by_hand(const Shape& shape) {
  const Wide T = shape.ranks, H = shape.hidden, L = shape.latent, K = shape.top_k, C = shape.capacity,
             PC = shape.poll_capacity;
  return 3 * T * C * L * 2 + 3 * C * H * 2 + C * H * 2 + 3 * C * L * 2 + 3 * C * L * 2 + 3 * C * L * 4 +
         3 * PC * K * L * 2 + 3 * PC * K * 4 + 3 * PC * H * 2 + 3 * T * 8;
}

RC_GTEST_PROP(HostileSizes, ShapesOfAnyIntegers, ()) {
  static std::uint64_t tries = 0;
  record_fault("shapes of any integers (RapidCheck)", kHost, ++tries,
               "refused by name, or a layout without overflow");
  const Shape shape = absurd_shape();
  const auto rule = protocol::first_broken_rule(shape);
  RC_CLASSIFY(rule == ShapeRule::ok, "accepted");
  PlanRequest request;
  request.shape = shape;
  request.batch = absurd_int();
  request.threads = *rc::gen::oneOf(rc::gen::inRange(0, 64), rc::gen::arbitrary<int>());
  try {
    const Plan plan = make_plan(request);
    RC_ASSERT(rule == ShapeRule::ok);
    RC_ASSERT(request.batch >= 0 && request.batch <= shape.capacity);
    RC_ASSERT(plan.clusters >= 1 && plan.columns_per_cluster >= 0);
  } catch (const Error& error) {
    RC_ASSERT(error.code() == Code::invalid_argument || error.code() == Code::unsupported);
  }
  if (rule != ShapeRule::ok) {
    try {
      static_cast<void>(World::single().make_boxes(shape));
      RC_FAIL("a shape that breaks a rule has boxes");
    } catch (const Error& error) {
      RC_ASSERT(error.code() == Code::invalid_argument);
    }
    return;
  }
  const auto layout = protocol::make_layout(shape);
  const Wide needed = bytes_by_hand(shape);
  RC_ASSERT(static_cast<Wide>(layout.total_bytes) <= needed + 16 * 4096);  // alignment and control words
  RC_ASSERT(static_cast<Wide>(layout.total_bytes) < 0x1p62L);
  for (int region = 0; region < protocol::kRegions; ++region)
    RC_ASSERT(static_cast<Wide>(layout.offset[region]) + static_cast<Wide>(layout.region_bytes[region]) <=
              static_cast<Wide>(layout.total_bytes));
}

TEST(HostileSizes, CountsAtTheEndOfSixtyFourBits) {
  CGroup group(1);
  std::uint64_t tries = 0;
  const auto refuse = [&](const std::string& part, const std::function<void(moetail_call&)>& spoil) {
    auto calls = group.calls(2);
    spoil(calls[0]);
    expect_refused(group.run(calls), MOETAIL_INVALID_ARGUMENT, {part, "accepted is"});
    ++tries;
  };
  alignas(16) static const std::int32_t map[64] = {};
  for (const std::uint64_t count :
       {UINT64_MAX, std::uint64_t{1} << 63, std::uint64_t{1} << 62, std::uint64_t{1} << 40}) {
    const auto permuted = [&](moetail_call& call) {
      call.form = MOETAIL_FORM_PERMUTED;
      call.rows = call.partial;
      call.map = map;
      call.map_count = 64;
      call.weights = map;
      call.weights_count = 8;
    };
    refuse("rows: ", [&](moetail_call& call) {
      permuted(call);
      call.rows_count = count - count % 128;
    });
    refuse("rows: size", [&](moetail_call& call) {
      permuted(call);
      call.rows_count = count - count % 128 + 1;
    });
    refuse("shared = null", [&](moetail_call& call) {
      call.shared = nullptr;
      call.shared_count = count;
    });
    // Longer than needed is accepted, however much longer: nothing beyond the rows is looked at.
    auto calls = group.calls(2);
    calls[0].partial_count = calls[0].shared_count = count;
    EXPECT_OK(group.run(calls));
    group.take();
    EXPECT_OK(moetail_world_synchronize(group.world));
    ++tries;
  }
  for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{2}, UINT64_MAX}) {
    auto calls = group.calls(2);
    moetail_out_view view = MOETAIL_OUT_VIEW_INIT;
    expect_refused(moetail_world_run(group.world, calls.data(), &view, count), MOETAIL_INVALID_ARGUMENT,
                   {"num_calls", "accepted is"});
    moetail_box* box = nullptr;
    expect_refused(moetail_world_make_boxes(group.world, &group.shape, &box, count), MOETAIL_INVALID_ARGUMENT,
                   {"num_boxes", "accepted is"});
    expect_refused(moetail_world_recover(group.world, group.boxes.data(), count), MOETAIL_INVALID_ARGUMENT,
                   {"num_boxes", "accepted is"});
    tries += 3;
  }
  record_fault("counts up to 2^64 - 1 in the C door", kHost, tries,
               "refused by name where P does not fit; longer than needed is accepted and not looked at");
}

class HostileBatch : public ::testing::TestWithParam<Variant> {};
INSTANTIATE_TEST_SUITE_P(Modes, HostileBatch, ::testing::ValuesIn(variants()), variant_name);

TEST_P(HostileBatch, TheCapacityAndOneMore) {
  HarnessOptions options;
  options.policy = kSharePolicy;
  Harness harness(small_shape(2), options);
  CallOptions call;
  call.mode = GetParam().mode;
  const int capacity = harness.shape().capacity;
  harness.check(capacity, call);
  for (const int batch : {capacity + 1, INT_MAX, -1, INT_MIN}) {
    const std::string named = fmt::format("batch = {}", batch);
    expect_error(Code::invalid_argument, {named}, [&] { harness.tail(0).push({}, batch, call.mode); });
    Call wrong;
    wrong.batch = batch;
    wrong.mode = call.mode;
    const std::vector<RankCall> calls = {{&harness.tail(0), wrong}, {&harness.tail(1), wrong}};
    expect_error(Code::invalid_argument, {named}, [&] { harness.world().run(calls); });
    harness.check(capacity, call);
  }
  record_fault("B = capacity, capacity + 1, negative, 2^31 - 1", kThreads, 5,
               "served, or refused by name with nothing done");
}

// Each rank's output row replaces its residual, as a decoder that adds in place has it.
TEST_P(HostileBatch, TheOutputReplacesTheResidual) {
  HarnessOptions harness_options;
  harness_options.policy = kSharePolicy;
  Harness harness(small_shape(4), harness_options);
  CallOptions options;
  options.mode = GetParam().mode;
  options.inputs.residual = true;
  constexpr std::uint64_t kCalls = 20;
  for (std::uint64_t seed = 1; seed <= kCalls; ++seed) {
    options.seed = seed;
    const auto& inputs = harness.make_inputs(GetParam().batch, options);
    Outputs streams(4, inputs.residual);
    auto calls = harness.prepare(GetParam().batch, inputs, options);
    for (std::size_t rank = 0; rank < 4; ++rank) calls[rank].call.residual = streams[rank];
    const auto views = harness.world().run(calls);
    for (std::size_t rank = 0; rank < 4; ++rank) harness.boxes()[rank].take(views[rank], streams[rank]);
    harness.world().synchronize();
    EXPECT_EQ(harness.judge(GetParam().batch, inputs, options, streams), "");
    EXPECT_NE(streams[0], inputs.residual);
  }
  record_fault("the output row replaces the residual", kThreads, kCalls,
               "the same bits as with buffers of their own");
}

}  // namespace
}  // namespace moetail::testing
