// SPDX-License-Identifier: Apache-2.0
// Every dispatch target against a scalar model of the numeric contract, bit for bit, and how a target is chosen.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <set>

#include "base/error.hpp"
#include "engine/cpu/arith_targets.hpp"
#include "tests/arith_support.hpp"

namespace moetail::cpu::test {
namespace {

using protocol::f32_from_bf16;

// --- the model ---------------------------------------------------------------------------------------------------

Bf16 model_bf16(float value) {  // written from the rule, not from protocol::bf16_from_f32
  if (std::isnan(value)) return 0x7FFF;
  const std::uint32_t bits = protocol::bits_from_float(value);
  const std::uint32_t kept = bits >> 16;
  const std::uint32_t dropped = bits & 0xFFFFu;
  const bool up = dropped > 0x8000u || (dropped == 0x8000u && (kept & 1u) != 0);
  return static_cast<Bf16>(kept + (up ? 1u : 0u));
}

enum class Order { contract, in_sequence, no_fma };

float multiply_add(float a, float b, float c, Order order) {
  if (order != Order::no_fma) return std::fmaf(a, b, c);
  volatile float product = a * b;  // two roundings, whatever the compiler likes to contract
  return product + c;
}

Bf16 model_finalize(const std::vector<const Bf16*>& rows, const std::vector<float>& weights, int c,
                    Order order = Order::contract) {
  const int top_k = static_cast<int>(rows.size());
  const int length = order == Order::in_sequence ? top_k : (top_k + 3) / 4;
  float run[4] = {0, 0, 0, 0};
  for (int k = 0; k < top_k; ++k) {
    const auto at = static_cast<std::size_t>(k);
    float& sum = run[k / length];
    if (rows[at] != nullptr) sum = multiply_add(weights[at], f32_from_bf16(rows[at][c]), sum, order);
  }
  return model_bf16((run[0] + run[2]) + (run[1] + run[3]));
}

float model_square_sum(const float* x, int columns, Order order = Order::contract) {
  float lane[16] = {};
  for (int c = 0; c < columns; ++c) {
    float& sum = lane[order == Order::in_sequence ? 0 : c % 16];
    sum = multiply_add(x[c], x[c], sum, order);
  }
  float eight[8], four[4];
  for (int i = 0; i < 8; ++i) eight[i] = lane[i] + lane[i + 8];
  for (int i = 0; i < 4; ++i) four[i] = eight[i] + eight[i + 4];
  return (four[0] + four[2]) + (four[1] + four[3]);
}

// --- finalize ----------------------------------------------------------------------------------------------------

struct Routes {
  std::vector<GuardedArray<Bf16>> storage;
  std::vector<const Bf16*> rows;
  std::vector<float> weights;
};

template <typename Value>
Routes make_routes(int top_k, int columns, std::uint64_t seed, unsigned dropped_in_16, Value value) {
  Routes routes;
  for (int k = 0; k < top_k; ++k) {
    const std::uint64_t row_seed = seed * 64 + static_cast<std::uint64_t>(k);
    const Touch touch = k % 2 == 0 ? Touch::end : Touch::begin;
    routes.storage.emplace_back(make_values(static_cast<std::size_t>(columns), row_seed, value), touch);
    routes.rows.push_back(hash(row_seed, 1) % 16 < dropped_in_16 ? nullptr : routes.storage.back().data());
    routes.weights.push_back(
        protocol::float_from_bits((static_cast<std::uint32_t>(value(row_seed, 1u << 20)) << 16) | 0x1234u));
  }
  return routes;
}

class ArithContract : public ArithTest {};
INSTANTIATE_TEST_SUITE_P(Targets, ArithContract, testing::ValuesIn(runnable_arith_targets()), target_name);

TEST_P(ArithContract, Finalize) {
  rc::check([&] {
    const int top_k = *rc::gen::inRange(1, 65);
    const int columns = 8 * *rc::gen::inRange(1, 40);
    const int begin = 8 * *rc::gen::inRange(0, columns / 8);
    const int end = begin + 8 * *rc::gen::inRange(0, (columns - begin) / 8 + 1);
    const auto seed = *rc::gen::arbitrary<std::uint32_t>();
    const Routes routes = make_routes(top_k, columns, seed, 4, any_bf16);
    constexpr Bf16 kUntouched = 0x1111;
    GuardedArray<Bf16> out(std::vector<Bf16>(static_cast<std::size_t>(columns), kUntouched), Touch::end);
    arith().finalize(routes.rows.data(), routes.weights.data(), top_k, begin, end, out.data());
    for (int c = 0; c < columns; ++c) {
      const bool inside = c >= begin && c < end;
      RC_ASSERT(out[static_cast<std::size_t>(c)] ==
                (inside ? model_finalize(routes.rows, routes.weights, c) : kUntouched));
    }
  });
}

// Routes in pairs that cancel but for their rounding, so that nearly every column shows in which order it was summed.
TEST_P(ArithContract, FinalizeAtK3SizeTellsOrdersApart) {
  Routes routes = make_routes(16, 3584, 11, 0, plain_bf16);
  for (std::size_t k = 0; k < 8; ++k) {
    routes.rows[15 - k] = routes.rows[k];
    routes.weights[15 - k] = -routes.weights[k];
  }
  std::vector<Bf16> out(3584);
  arith().finalize(routes.rows.data(), routes.weights.data(), 16, 0, 3584, out.data());
  int sequence_differs = 0;
  int unfused_differs = 0;
  for (int c = 0; c < 3584; ++c) {
    const Bf16 got = out[static_cast<std::size_t>(c)];
    ASSERT_EQ(got, model_finalize(routes.rows, routes.weights, c)) << "column " << c;
    sequence_differs += got != model_finalize(routes.rows, routes.weights, c, Order::in_sequence);
    unfused_differs += got != model_finalize(routes.rows, routes.weights, c, Order::no_fma);
  }
  EXPECT_GT(sequence_differs, 1000);  // else the inputs could not show a wrong order
  EXPECT_GT(unfused_differs, 1000);
}

TEST_P(ArithContract, FinalizeWithEveryRouteDroppedIsPlusZero) {
  const std::vector<const Bf16*> rows(16, nullptr);
  const std::vector<float> weights(16, std::nanf(""));
  std::vector<Bf16> out(64, 0x1111);
  arith().finalize(rows.data(), weights.data(), 16, 0, 64, out.data());
  EXPECT_TRUE(same_bits(out, std::vector<Bf16>(64, 0), 64));
}

// --- sums, norm, finish ------------------------------------------------------------------------------------------

TEST_P(ArithContract, SumRows) {
  rc::check([&] {
    const int num_rows = *rc::gen::inRange(1, 17);
    const auto columns = static_cast<std::size_t>(8 * *rc::gen::inRange(1, 40));
    const auto seed = *rc::gen::arbitrary<std::uint32_t>();
    std::vector<GuardedArray<Bf16>> storage;
    std::vector<const Bf16*> rows;
    for (int r = 0; r < num_rows; ++r) {
      storage.emplace_back(make_values(columns, seed + static_cast<std::uint64_t>(r) * 131, any_bf16),
                           Touch::end);
      rows.push_back(storage.back().data());
    }
    GuardedArray<float> sum(columns);
    arith().sum_rows(rows.data(), num_rows, static_cast<int>(columns), sum.data());
    std::vector<float> want(columns);
    for (std::size_t c = 0; c < columns; ++c) {
      want[c] = f32_from_bf16(rows[0][c]);
      for (std::size_t r = 1; r < rows.size(); ++r) want[c] = want[c] + f32_from_bf16(rows[r][c]);
    }
    RC_ASSERT(same_bits(sum, want, columns));
  });
}

TEST_P(ArithContract, SumOfOneRowKeepsMinusZeroAndSubnormals) {
  const std::vector<Bf16> row = {0x8000, 0x0000, 0x0001, 0x8001, 0x007F, 0x807F, 0x0080, 0x8080};
  const Bf16* rows[] = {row.data()};
  std::vector<float> sum(8);
  arith().sum_rows(rows, 1, 8, sum.data());
  for (std::size_t c = 0; c < 8; ++c) {
    EXPECT_EQ(protocol::bits_from_float(sum[c]), static_cast<std::uint32_t>(row[c]) << 16);
  }
}

TEST_P(ArithContract, NormOperand) {
  rc::check([&] {
    const auto columns = static_cast<std::size_t>(8 * *rc::gen::inRange(1, 60));
    const auto seed = *rc::gen::arbitrary<std::uint32_t>();
    const bool special =
        *rc::gen::arbitrary<bool>();  // one NaN makes the sum a NaN, so half of the cases have none
    const auto value = [&](std::uint64_t s, std::uint64_t i) {
      return special ? any_f32(s, i) : f32_from_bf16(plain_bf16(s, i)) * 1.0009765f;
    };
    const GuardedArray<float> x(make_values(columns, seed, value), GuardedArray<float>::Touch::end);
    const GuardedArray<Bf16> gamma(make_values(columns, seed + 1, any_bf16), Touch::end);
    GuardedArray<Bf16> operand(columns);
    const float squares =
        arith().norm_operand(x.data(), gamma.data(), static_cast<int>(columns), operand.data());
    std::vector<Bf16> want(columns);
    for (std::size_t c = 0; c < columns; ++c) want[c] = model_bf16(f32_from_bf16(gamma[c]) * x[c]);
    RC_ASSERT(same_bits(operand, want, columns));
    RC_ASSERT(bits_of(squares) == bits_of(model_square_sum(x.data(), static_cast<int>(columns))));
  });
}

TEST_P(ArithContract, SquareSumTellsOrdersApart) {
  const std::vector<float> x = make_values(
      3592, 5, [](std::uint64_t s, std::uint64_t i) { return f32_from_bf16(plain_bf16(s, i)) * 1.0009765f; });
  const std::vector<Bf16> gamma(3592, 0x3F80);
  std::vector<Bf16> operand(3592);
  const float squares = arith().norm_operand(x.data(), gamma.data(), 3592, operand.data());
  EXPECT_EQ(bits_of(squares), bits_of(model_square_sum(x.data(), 3592)));
  EXPECT_NE(bits_of(squares), bits_of(model_square_sum(x.data(), 3592, Order::in_sequence)));
  EXPECT_NE(bits_of(squares), bits_of(model_square_sum(x.data(), 3592, Order::no_fma)));
}

TEST_P(ArithContract, Finish) {
  rc::check([&] {
    const auto columns = static_cast<std::size_t>(8 * *rc::gen::inRange(1, 40));
    const auto seed = *rc::gen::arbitrary<std::uint32_t>();
    const bool with_residual = *rc::gen::arbitrary<bool>();
    const float scale = any_f32(seed, 999);
    const GuardedArray<float> dot(make_values(columns, seed, any_f32), GuardedArray<float>::Touch::end);
    const GuardedArray<float> shared(make_values(columns, seed + 1, any_f32),
                                     GuardedArray<float>::Touch::end);
    const GuardedArray<Bf16> residual(make_values(columns, seed + 2, any_bf16), Touch::end);
    GuardedArray<Bf16> out(columns);
    arith().finish(dot.data(), scale, shared.data(), with_residual ? residual.data() : nullptr,
                   static_cast<int>(columns), out.data());
    std::vector<Bf16> want(columns);
    for (std::size_t c = 0; c < columns; ++c) {
      float value = std::fmaf(dot[c], scale, shared[c]);
      if (with_residual) value = value + f32_from_bf16(residual[c]);
      want[c] = model_bf16(value);
    }
    RC_ASSERT(same_bits(out, want, columns));
  });
}

// fma(x, 1, -0) is x, so finish shows the rounding itself: every upper half, with the lower halves around each decision.
TEST_P(ArithContract, RoundingOfEveryUpperHalf) {
  constexpr std::uint32_t kLow[] = {0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x4000, 0xC000};
  constexpr std::size_t kNumLow = std::size(kLow);
  constexpr std::size_t kBatch = 1024;
  const std::vector<float> minus_zero(kBatch * kNumLow, -0.0f);
  std::vector<float> x(kBatch * kNumLow);
  std::vector<Bf16> out(x.size());
  std::vector<Bf16> want(x.size());
  for (std::uint32_t first = 0; first < 0x10000u; first += kBatch) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto high = static_cast<std::uint32_t>(first + i / kNumLow);
      x[i] = protocol::float_from_bits((high << 16) | kLow[i % kNumLow]);
      want[i] = model_bf16(x[i]);
    }
    arith().finish(x.data(), 1.0f, minus_zero.data(), nullptr, static_cast<int>(x.size()), out.data());
    ASSERT_TRUE(same_bits(out, want, out.size())) << "upper halves from " << first;
  }
}

// --- choice ------------------------------------------------------------------------------------------------------

TEST(ArithChoice, TargetsHaveTheirOwnNamesAndScalarIsLast) {
  std::set<std::string> names;
  for (const Arith* target : runnable_arith_targets())
    EXPECT_TRUE(names.insert(target->name).second) << target->name;
  EXPECT_STREQ(runnable_arith_targets().back()->name, "scalar");
}

TEST(ArithChoice, TheBestOneUnlessNamed) {
  const auto& runnable = runnable_targets();
  EXPECT_EQ(&choose_target(std::nullopt, runnable), runnable.front());
  for (const Target* target : runnable) EXPECT_EQ(&choose_target(target->arith.name, runnable), target);
}

TEST(ArithChoice, AnUnknownOrUnrunnableNameIsAnErrorThatListsTheOthers) {
  const std::vector<const Target*> only_scalar = {scalar_target()};
  for (const char* name : {"avx9", "amx_bf16", "Scalar", "scalar "}) {
    try {
      choose_target(name, only_scalar);
      FAIL() << name << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::unsupported);
      EXPECT_STREQ(
          error.what(),
          (std::string("MOETAIL_CPU_TARGET = ") + name + ": accepted on this machine is scalar").c_str());
    }
  }
}

// In a process of its own, since arith() chooses once.
TEST(ArithChoice, TheEnvironmentNamesIt) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto exit_code = [](const char* value) {
    setenv("MOETAIL_CPU_TARGET", value, 1);
    try {
      return std::string(arith().name) == "scalar" ? 10 : 11;
    } catch (const Error& error) {
      return error.code() == Code::unsupported ? 12 : 13;
    }
  };
  EXPECT_EXIT(std::exit(exit_code("scalar")), testing::ExitedWithCode(10), "");
  EXPECT_EXIT(std::exit(exit_code("nonsense")), testing::ExitedWithCode(12), "");
  const bool only_scalar = runnable_targets().size() == 1;
  EXPECT_EXIT(std::exit(exit_code("")), testing::ExitedWithCode(only_scalar ? 10 : 11), "");
}

}  // namespace
}  // namespace moetail::cpu::test
