// SPDX-License-Identifier: Apache-2.0
// The dot of every dispatch target: its accuracy, its stated order, and that nothing but `latent` changes that order.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <thread>

#include "tests/arith_support.hpp"

namespace moetail::cpu::test {
namespace {

using protocol::f32_from_bf16;

constexpr std::uint32_t kNotWritten = 0x41424344;

struct Case {
  int latent = 8;
  int num_rows = 1;
  int num_tokens = 1;
  int dot_pitch = 1;
  std::vector<Bf16> weights;
  std::vector<Bf16> operand;

  std::size_t at(int token, int row) const {
    return static_cast<std::size_t>(token) * static_cast<std::size_t>(dot_pitch) +
           static_cast<std::size_t>(row);
  }
  const Bf16* weight_row(int row) const { return weights.data() + static_cast<std::ptrdiff_t>(row) * latent; }
  const Bf16* token(int t) const { return operand.data() + static_cast<std::ptrdiff_t>(t) * latent; }
};

Case make_case(int latent, int num_rows, int num_tokens, std::uint64_t seed) {
  Case c = {latent, num_rows, num_tokens, num_rows + static_cast<int>(seed % 3), {}, {}};
  c.weights =
      make_values(static_cast<std::size_t>(latent) * static_cast<std::size_t>(num_rows), seed, plain_bf16);
  c.operand =
      make_values(static_cast<std::size_t>(latent) * static_cast<std::size_t>(num_tokens), ~seed, plain_bf16);
  return c;
}

/// The whole dot, with all three arrays between guard pages and nothing written beside the output's rows.
std::vector<float> run(const Arith& arith, const Case& c, Touch touch = Touch::end) {
  const GuardedArray<Bf16> weights(c.weights, touch);
  const GuardedArray<Bf16> operand(c.operand, touch);
  const std::vector<float> untouched(c.at(c.num_tokens - 1, c.num_rows),
                                     protocol::float_from_bits(kNotWritten));
  GuardedArray<float> dot(
      untouched, touch == Touch::end ? GuardedArray<float>::Touch::end : GuardedArray<float>::Touch::begin);
  arith.dot(weights.data(), operand.data(), c.latent, c.num_rows, c.num_tokens, dot.data(), c.dot_pitch);
  for (std::size_t i = 0; i < dot.size(); ++i) {
    if (i % static_cast<std::size_t>(c.dot_pitch) < static_cast<std::size_t>(c.num_rows)) continue;
    EXPECT_EQ(protocol::bits_from_float(dot[i]), kNotWritten) << "written beside the output at " << i;
  }
  return {dot.data(), dot.data() + dot.size()};
}

float run_one(const Arith& arith, const Case& c, int row, int token) {
  float dot = 0;
  arith.dot(c.weight_row(row), c.token(token), c.latent, 1, 1, &dot, 1);
  return dot;
}

/// |error| of an fp32 sum whose longest chain has n roundings is at most n * 2^-24 * sum |w x|, to first order; a chain
/// is latent / 16 products and at most 24 joins and roundings inside an instruction. Twice that covers higher orders.
void expect_close(const Case& c, int row, int token, float got) {
  double want = 0;
  double magnitude = 0;
  for (int i = 0; i < c.latent; ++i) {
    const double product =
        static_cast<double>(f32_from_bf16(c.weight_row(row)[i])) * f32_from_bf16(c.token(token)[i]);
    want += product;
    magnitude += std::fabs(product);
  }
  const double bound = 2.0 * (c.latent / 16 + 24) * 0x1p-24 * magnitude;
  EXPECT_NEAR(got, want, bound) << "row " << row << ", token " << token;
}

TEST(ArithGuard,
     AReadBesideAGuardedArrayDies) {  // else the guard pages of all other tests would show nothing
  const std::vector<Bf16> values(16, 0x3F80);
  const GuardedArray<Bf16> at_end(values, Touch::end);
  const GuardedArray<Bf16> at_begin(values, Touch::begin);
  const volatile Bf16* past = at_end.data() + 16;
  const volatile Bf16* before = at_begin.data() - 1;
  EXPECT_DEATH(std::exit(*past), "");
  EXPECT_DEATH(std::exit(*before), "");
}

// --- the stated orders -------------------------------------------------------------------------------------------

enum class DotOrder { portable, avx512_bf16, amx_bf16, in_sequence };

float model_dot(const Bf16* w, const Bf16* x, int latent, DotOrder order) {
  const auto product_add = [&](int i, float sum) {
    return i < latent ? std::fmaf(f32_from_bf16(w[i]), f32_from_bf16(x[i]), sum) : sum;
  };
  float sum = 0;
  if (order == DotOrder::in_sequence) {
    for (int i = 0; i < latent; ++i) sum = product_add(i, sum);
    return sum;
  }
  float lane[16] = {};
  for (int step = 0; step < latent; step += 32) {
    float even = 0;
    float odd = 0;
    for (int i = 0; i < 16; ++i) {
      const int first = step + 2 * i;
      if (order == DotOrder::portable) lane[i] = product_add(first + 1, product_add(first, lane[i]));
      if (order == DotOrder::avx512_bf16) lane[i] = product_add(first, product_add(first + 1, lane[i]));
      even = product_add(first, even);
      odd = product_add(first + 1, odd);
    }
    sum += even + odd;
  }
  if (order == DotOrder::amx_bf16) return sum;
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
  }
  return lane[0];
}

class ArithDot : public ArithTest {
 protected:
  DotOrder order() const {
    return is("amx_bf16")      ? DotOrder::amx_bf16
           : is("avx512_bf16") ? DotOrder::avx512_bf16
                               : DotOrder::portable;
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, ArithDot, testing::ValuesIn(runnable_arith_targets()), target_name);

constexpr int kLatents[] = {8, 16, 24, 32, 40, 56, 64, 120, 1000, 3584, 4096, 8232};

TEST_P(ArithDot, CloseToFloat64AndInTheStatedOrder) {
  rc::check([&] {
    const int latent = *rc::gen::elementOf(std::vector<int>(std::begin(kLatents), std::end(kLatents)));
    const Case c = make_case(latent, *rc::gen::inRange(1, 40), *rc::gen::inRange(1, 40),
                             *rc::gen::arbitrary<std::uint32_t>());
    const std::vector<float> dot = run(arith(), c);
    for (int row = 0; row < c.num_rows; row += 3) {
      for (int token = 0; token < c.num_tokens; token += 2) {
        const float got = dot[c.at(token, row)];
        expect_close(c, row, token, got);
        RC_ASSERT(bits_of(got) == bits_of(model_dot(c.weight_row(row), c.token(token), latent, order())));
      }
    }
  });
}

TEST_P(ArithDot, AnotherOrderWouldShow) {
  const Case c = make_case(3584, 32, 4, 3);
  const std::vector<float> dot = run(arith(), c);
  int differs = 0;
  for (int row = 0; row < c.num_rows; ++row) {
    differs += bits_of(dot[c.at(0, row)]) !=
               bits_of(model_dot(c.weight_row(row), c.token(0), 3584, DotOrder::in_sequence));
  }
  EXPECT_GT(differs, 16);
}

// --- nothing but latent matters ----------------------------------------------------------------------------------

TEST_P(ArithDot, SameBitsWhateverTheRowsAndTokensBesideIt) {
  rc::check([&] {
    const int latent = 8 * *rc::gen::inRange(1, 30);
    const int num_rows = *rc::gen::inRange(1, 100);
    const int num_tokens = *rc::gen::inRange(1, 100);
    const Case c = make_case(latent, num_rows, num_tokens, *rc::gen::arbitrary<std::uint32_t>());
    const std::vector<float> dot = run(arith(), c, *rc::gen::element(Touch::end, Touch::begin));
    for (int row = 0; row < num_rows; ++row) {
      const int token =
          static_cast<int>(hash(static_cast<std::uint64_t>(row), 3) % static_cast<unsigned>(num_tokens));
      RC_ASSERT(bits_of(dot[c.at(token, row)]) == bits_of(run_one(arith(), c, row, token)));
    }
    for (int token = 0; token < num_tokens; ++token) {
      const int row =
          static_cast<int>(hash(static_cast<std::uint64_t>(token), 4) % static_cast<unsigned>(num_rows));
      RC_ASSERT(bits_of(dot[c.at(token, row)]) == bits_of(run_one(arith(), c, row, token)));
    }
  });
}

TEST_P(ArithDot, EveryBatchSizeAtK3Width) {
  const Case whole = make_case(3584, 49, 300, 8);  // beyond what one packed operand holds
  const std::vector<float> want = run(arith(), whole);
  for (const int num_tokens : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 127, 128, 129, 300}) {
    Case c = whole;
    c.num_tokens = num_tokens;
    c.operand.resize(static_cast<std::size_t>(num_tokens) * 3584);
    const std::vector<float> got = run(arith(), c);
    for (int token = 0; token < num_tokens; ++token) {
      const auto at = static_cast<std::ptrdiff_t>(c.at(token, 0));
      ASSERT_TRUE(same_bits(got.begin() + at, want.begin() + at, 49))
          << num_tokens << " tokens, token " << token;
    }
  }
}

TEST_P(ArithDot, ThreadsDoNotDisturbEachOther) {
  const Case c = make_case(1000, 70, 20, 21);
  const std::vector<float> want = run(arith(), c);
  std::vector<std::vector<float>> got(4);
  std::vector<std::thread> threads;
  for (std::vector<float>& mine : got) {
    threads.emplace_back([&] {
      for (int repeat = 0; repeat < 5; ++repeat) mine = run(arith(), c);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<float>& mine : got) EXPECT_TRUE(same_bits(mine, want, want.size()));
}

TEST_P(ArithDot, NoRowsOrNoTokensIsNothing) {
  const std::vector<Bf16> values(64, 0x3F80);
  float dot = 7;
  arith().dot(values.data(), values.data(), 32, 0, 2, &dot, 2);
  arith().dot(values.data(), values.data(), 32, 2, 0, &dot, 2);
  EXPECT_EQ(dot, 7);
}

// --- special values ----------------------------------------------------------------------------------------------

constexpr Bf16 kOne = 0x3F80;
constexpr Bf16 kInf = 0x7F80;
constexpr Bf16 kMinusInf = 0xFF80;
constexpr Bf16 kNan = 0x7FC1;

TEST_P(ArithDot, OneNanOrInfReachesItsRowOrTokenAndNoOther) {
  for (const int latent : {8, 24, 40, 1000}) {
    const Case plain = make_case(latent, 35, 19, 4);
    const std::vector<float> clean = run(arith(), plain);
    for (const Bf16 special : {kNan, kInf, kMinusInf}) {
      for (const int column : {0, 1, latent / 2 + 1, latent - 2, latent - 1}) {
        const int bad_row = column % plain.num_rows;
        const int bad_token = column % plain.num_tokens;
        const auto in_row = static_cast<std::size_t>(bad_row * latent + column);
        const auto in_token = static_cast<std::size_t>(bad_token * latent + column);
        Case c = plain;
        c.weights[in_row] = special;
        std::vector<float> dot = run(arith(), c);
        for (int row = 0; row < c.num_rows; ++row) {
          for (int token = 0; token < c.num_tokens; ++token) {
            const float want = row == bad_row ? f32_from_bf16(special) * f32_from_bf16(c.token(token)[column])
                                              : clean[c.at(token, row)];
            ASSERT_EQ(bits_of(dot[c.at(token, row)]), bits_of(want)) << latent << " " << row << " " << token;
          }
        }
        c = plain;
        c.operand[in_token] = special;
        dot = run(arith(), c);
        for (int row = 0; row < c.num_rows; ++row) {
          for (int token = 0; token < c.num_tokens; ++token) {
            const float want = token == bad_token
                                   ? f32_from_bf16(special) * f32_from_bf16(c.weight_row(row)[column])
                                   : clean[c.at(token, row)];
            ASSERT_EQ(bits_of(dot[c.at(token, row)]), bits_of(want)) << latent << " " << row << " " << token;
          }
        }
      }
    }
  }
}

// Whatever a target fills its registers up with must not meet an Inf as 0 * Inf.
TEST_P(ArithDot, PaddingNeverMakesANan) {
  for (const int latent : {8, 24, 40, 64, 1000}) {
    for (const int num_tokens : {1, 3, 5, 17, 33}) {
      Case c = make_case(latent, 19, num_tokens, 5);
      std::fill(c.weights.begin(), c.weights.end(), kInf);
      std::fill(c.operand.begin(), c.operand.end(), kOne);
      for (const float value : run(arith(), c)) {
        if (protocol::bits_from_float(value) == kNotWritten) continue;
        ASSERT_EQ(value, f32_from_bf16(kInf));
      }
      std::fill(c.weights.begin(), c.weights.end(), kOne);
      std::fill(c.operand.begin(), c.operand.end(), kMinusInf);
      for (const float value : run(arith(), c)) {
        if (protocol::bits_from_float(value) == kNotWritten) continue;
        ASSERT_EQ(value, f32_from_bf16(kMinusInf));
      }
    }
  }
}

TEST_P(ArithDot, InvalidOperationsAreNan) {
  const std::vector<std::pair<std::vector<Bf16>, std::vector<Bf16>>> cases = {
      {{kInf, kOne}, {0, kOne}},            // Inf * 0
      {{0x8000, kOne}, {kMinusInf, kOne}},  // -0 * -Inf
      {{kInf, kMinusInf}, {kOne, kOne}},    // Inf - Inf
      {{kNan, kOne}, {0, kOne}},            // NaN * 0
  };
  for (const auto& [weights, operand] : cases) {
    Case c = make_case(40, 1, 1, 6);
    std::copy(weights.begin(), weights.end(), c.weights.begin() + 33);
    std::copy(operand.begin(), operand.end(), c.operand.begin() + 33);
    EXPECT_TRUE(std::isnan(run_one(arith(), c, 0, 0)));
  }
}

// Weights and operands with special values strewn in: finite, Inf or NaN as a plain fp32 sum has it.
TEST_P(ArithDot, ManySpecialValuesAgreeInKindWithFp32) {
  const auto value = [](std::uint64_t seed,
                        std::uint64_t i) {  // no subnormals and no near-overflow: those may differ
    constexpr Bf16 kSpecial[] = {0, 0x8000, kInf, kMinusInf, kNan, 0xFFFF};
    return hash(seed, i) % 64 == 0 ? kSpecial[hash(seed, ~i) % std::size(kSpecial)] : plain_bf16(seed, i);
  };
  Case c = make_case(72, 40, 20, 7);
  c.weights = make_values(c.weights.size(), 70, value);
  c.operand = make_values(c.operand.size(), 71, value);
  const std::vector<float> dot = run(arith(), c);
  int kinds[3] = {};
  for (int row = 0; row < c.num_rows; ++row) {
    for (int token = 0; token < c.num_tokens; ++token) {
      const float want = model_dot(c.weight_row(row), c.token(token), c.latent, DotOrder::in_sequence);
      const float got = dot[c.at(token, row)];
      if (std::isfinite(want)) {
        EXPECT_TRUE(std::isfinite(got));
      } else {
        EXPECT_EQ(bits_of(got), bits_of(want)) << "row " << row << ", token " << token;
      }
      ++kinds[std::isfinite(want) ? 0 : std::isinf(want) ? 1 : 2];
    }
  }
  for (const int count : kinds) EXPECT_GT(count, 20);
}

}  // namespace
}  // namespace moetail::cpu::test
