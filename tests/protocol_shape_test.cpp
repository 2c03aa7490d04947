// SPDX-License-Identifier: Apache-2.0
// Which shapes are accepted, and which rule a rejected one is told.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "protocol/shape.hpp"

namespace moetail::protocol {
namespace {

Shape with(i32 Shape::*field, i32 value) {
  Shape shape;
  shape.*field = value;
  return shape;
}

Shape with_eps(float eps) {
  Shape shape;
  shape.eps = eps;
  return shape;
}

struct Rejection {
  Shape shape;
  ShapeRule rule;
  const char* field;
  double value;
  const char* accepted;  // a part of the text
};

TEST(ProtocolShape, KimiK3IsTheDefault) {
  constexpr Shape kShape;
  static_assert(first_broken_rule(kShape) == ShapeRule::ok && allows_twoshot(kShape));
  EXPECT_EQ(kShape.hidden, 7168);
  EXPECT_EQ(kShape.latent, 3584);
  EXPECT_EQ(kShape.top_k, 16);
  EXPECT_EQ(kShape.capacity, 128);
  EXPECT_EQ(kShape.poll_capacity, 16);
  EXPECT_EQ(kShape.eps, 1e-5f);
  EXPECT_EQ(kShape.shard(), 896);
  EXPECT_EQ(kShape.chunk(), 448);
  for (i32 ranks : {1, 2, 4, 8, 16}) {
    const Shape shape = with(&Shape::ranks, ranks);
    EXPECT_EQ(first_broken_rule(shape), ShapeRule::ok) << ranks;
    EXPECT_TRUE(allows_twoshot(shape)) << ranks;
  }
}

TEST(ProtocolShape, EveryRejectedShapeIsToldItsRule) {
  constexpr auto kNan = std::numeric_limits<float>::quiet_NaN();
  const Rejection rejections[] = {
      {with(&Shape::ranks, 0), ShapeRule::ranks, "ranks", 0, "1, 2, 4, 8 or 16"},
      {with(&Shape::ranks, -8), ShapeRule::ranks, "ranks", -8, "16"},
      {with(&Shape::ranks, 3), ShapeRule::ranks, "ranks", 3, "16"},
      {with(&Shape::ranks, 7), ShapeRule::ranks, "ranks", 7, "16"},
      {with(&Shape::ranks, 32), ShapeRule::ranks, "ranks", 32, "16"},
      {with(&Shape::hidden, 0), ShapeRule::hidden, "hidden", 0, "multiple of 8 * ranks"},
      {with(&Shape::hidden, -64), ShapeRule::hidden, "hidden", -64, "multiple of 8 * ranks"},
      {with(&Shape::hidden, 7160), ShapeRule::hidden, "hidden", 7160, "multiple of 8 * ranks"},
      {with(&Shape::hidden, 56), ShapeRule::hidden, "hidden", 56, "multiple of 8 * ranks"},
      {with(&Shape::hidden, kMaxColumns + 64), ShapeRule::hidden, "hidden", kMaxColumns + 64, "1048576"},
      {with(&Shape::latent, 0), ShapeRule::latent, "latent", 0, "multiple of 8"},
      {with(&Shape::latent, -8), ShapeRule::latent, "latent", -8, "multiple of 8"},
      {with(&Shape::latent, 4), ShapeRule::latent, "latent", 4, "multiple of 8"},
      {with(&Shape::latent, 3585), ShapeRule::latent, "latent", 3585, "multiple of 8"},
      {with(&Shape::latent, kMaxColumns + 8), ShapeRule::latent, "latent", kMaxColumns + 8, "1048576"},
      {with(&Shape::top_k, 0), ShapeRule::top_k, "top_k", 0, "1 to 64"},
      {with(&Shape::top_k, -1), ShapeRule::top_k, "top_k", -1, "1 to 64"},
      {with(&Shape::top_k, 65), ShapeRule::top_k, "top_k", 65, "1 to 64"},
      {with(&Shape::capacity, 0), ShapeRule::capacity, "capacity", 0, "1 to 65535"},
      {with(&Shape::capacity, 65536), ShapeRule::capacity, "capacity", 65536, "1 to 65535"},
      {with(&Shape::poll_capacity, -1), ShapeRule::poll_capacity, "poll_capacity", -1, "0 to capacity"},
      {with(&Shape::poll_capacity, 129), ShapeRule::poll_capacity, "poll_capacity", 129, "0 to capacity"},
      {with_eps(-1e-6f), ShapeRule::eps, "eps", -1e-6f, "0 to 1"},
      {with_eps(1.5f), ShapeRule::eps, "eps", 1.5, "0 to 1"},
      {with_eps(std::numeric_limits<float>::infinity()), ShapeRule::eps, "eps",
       std::numeric_limits<double>::infinity(), "0 to 1"},
      {with_eps(kNan), ShapeRule::eps, "eps", kNan, "0 to 1"},
  };
  for (const Rejection& rejection : rejections) {
    SCOPED_TRACE(std::string(rejection.field) + " = " + std::to_string(rejection.value));
    ASSERT_EQ(first_broken_rule(rejection.shape), rejection.rule);
    const RuleText text = rule_text(rejection.rule);
    EXPECT_STREQ(text.field, rejection.field);
    EXPECT_NE(std::string(text.accepted).find(rejection.accepted), std::string::npos) << text.accepted;
    const double value = rule_value(rejection.shape, rejection.rule);
    EXPECT_TRUE(value == rejection.value || (std::isnan(value) && std::isnan(rejection.value))) << value;
  }
}

TEST(ProtocolShape, LimitsThemselvesAreAccepted) {
  for (const Shape& shape :
       {with(&Shape::hidden, 64), with(&Shape::hidden, kMaxColumns), with(&Shape::latent, 8),
        with(&Shape::latent, kMaxColumns), with(&Shape::top_k, 1), with(&Shape::top_k, kMaxTopK),
        with(&Shape::capacity, kMaxCapacity), with(&Shape::poll_capacity, 0),
        with(&Shape::poll_capacity, 128), with_eps(0.0f), with_eps(1.0f)})
    EXPECT_EQ(first_broken_rule(shape), ShapeRule::ok);
  Shape one = with(&Shape::capacity, 1);
  EXPECT_EQ(first_broken_rule(one), ShapeRule::poll_capacity);
  one.poll_capacity = 1;
  EXPECT_EQ(first_broken_rule(one), ShapeRule::ok);
}

TEST(ProtocolShape, TwoshotAsksForItsOwnRuleOnly) {
  const Shape odd = with(&Shape::latent, 8 * 9);
  EXPECT_EQ(first_broken_rule(odd), ShapeRule::ok);
  EXPECT_FALSE(allows_twoshot(odd));
  EXPECT_STREQ(rule_text(ShapeRule::latent_twoshot).field, "latent");
  EXPECT_NE(std::string(rule_text(ShapeRule::latent_twoshot).accepted).find("8 * ranks in twoshot"),
            std::string::npos);
  EXPECT_EQ(rule_value(odd, ShapeRule::latent_twoshot), 72);
  EXPECT_STREQ(rule_text(ShapeRule::ok).field, "");
  EXPECT_EQ(rule_value(odd, ShapeRule::ok), 0);
}

// The rules once more, as the mission states them.
bool is_accepted(const Shape& s) {
  bool ranks = false;
  for (i32 power = 1; power <= 16; power *= 2) ranks |= s.ranks == power;
  return ranks && s.hidden > 0 && s.hidden <= 1048576 && s.hidden % (8 * s.ranks) == 0 && s.latent > 0 &&
         s.latent <= 1048576 && s.latent % 8 == 0 && s.top_k >= 1 && s.top_k <= 64 && s.capacity >= 1 &&
         s.capacity <= 65535 && s.poll_capacity >= 0 && s.poll_capacity <= s.capacity && s.eps >= 0 &&
         s.eps <= 1;
}

RC_GTEST_PROP(ProtocolShapeProperty, FirstBrokenRuleAgreesWithTheStatedRules, ()) {
  const auto near = [](i32 limit) {
    return rc::gen::oneOf(rc::gen::inRange(-2, 130), rc::gen::inRange(limit - 2, limit + 3),
                          rc::gen::map(rc::gen::inRange(0, 200), [](i32 v) { return 8 * v; }),
                          rc::gen::arbitrary<i32>());
  };
  Shape shape;
  shape.ranks = *rc::gen::oneOf(rc::gen::element<i32>(1, 2, 4, 8, 16), rc::gen::inRange(-2, 20));
  shape.hidden = *near(kMaxColumns);
  shape.latent = *near(kMaxColumns);
  shape.top_k = *rc::gen::inRange(-1, 70);
  shape.capacity = *near(kMaxCapacity);
  shape.poll_capacity = *rc::gen::inRange(-1, 200);
  shape.eps = *rc::gen::element(0.0f, 1e-6f, 1.0f, -1.0f, 2.0f);
  RC_ASSERT((first_broken_rule(shape) == ShapeRule::ok) == is_accepted(shape));
}

}  // namespace
}  // namespace moetail::protocol
