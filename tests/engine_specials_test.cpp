// SPDX-License-Identifier: Apache-2.0
// Values that other systems hang on or change: -0, subnormals, Inf, NaNs of any payload, words that are the
// sentinel or near it, in every input and every mode. No hang, the class of every element as the oracle says,
// equal bits on all ranks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "tests/harness.hpp"
#include "tests/record.hpp"
#include "tests/variants.hpp"

namespace moetail::testing {
namespace {

namespace special = verify::special;

class EngineSpecials : public ::testing::TestWithParam<Variant> {
 protected:
  static HarnessOptions options() {
    HarnessOptions options;
    options.policy = kSharePolicy;
    return options;
  }
  CallOptions call(Form form = Form::expanded) const {
    CallOptions call;
    call.mode = GetParam().mode;
    call.inputs.form = form;
    return call;
  }
  bool serves(Form form) const { return form != Form::published || GetParam().mode != Mode::front; }

  void run(Harness& harness, const verify::CallInputs& inputs, const CallOptions& call) const {
    const Outputs& outputs = harness.enqueue(GetParam().batch, inputs, call);
    harness.world().synchronize();
    EXPECT_EQ(harness.judge(GetParam().batch, inputs, call, outputs), "");
  }
};
INSTANTIATE_TEST_SUITE_P(Modes, EngineSpecials, ::testing::ValuesIn(variants()), variant_name);

// Each kind by itself in all arrays, rarely enough that other rows stay numbers, and everywhere.
TEST_P(EngineSpecials, EveryKindInRowsPartialsSharedAndResidual) {
  std::uint64_t seed = 0;
  for (int ranks : {1, 2, 8}) {
    Harness harness(small_shape(ranks), options());
    for (Form form : kForms)
      for (std::uint32_t kinds : {special::kMinusZero, special::kPlusZero, special::kSubnormal,
                                  special::kZeroPair, special::kInfinity, special::kNan, special::kSentinel,
                                  special::kNearSentinel, special::kFinite, special::kAll})
        for (double share : {0.002, 0.1, 1.0}) {
          if (!serves(form)) continue;
          SCOPED_TRACE(
              fmt::format("T={} {} kinds {:#x} share {}", ranks, protocol::form_name(form), kinds, share));
          CallOptions special_call = call(form);
          special_call.inputs.specials = {kinds, share};
          special_call.inputs.residual = true;
          special_call.seed = ++seed;
          run(harness, harness.make_inputs(GetParam().batch, special_call), special_call);
        }
  }
  record_fault("special values by kind in every input and form", kThreads, seed,
               "ended; equal bits on all ranks; NaN and Inf where the oracle has them");
}

// The sentinel word alone in one place, at both ends of rows: what is cleaned must still arrive.
TEST_P(EngineSpecials, TheSentinelWordAtTheEndsOfRows) {
  Harness harness(small_shape(4), options());
  for (Form form : kForms) {
    if (!serves(form)) continue;
    SCOPED_TRACE(protocol::form_name(form));
    auto& inputs = harness.make_inputs(GetParam().batch, call(form));
    for (auto& arrays : inputs.arrays)
      for (auto* array : {&arrays.rows, &arrays.partial, &arrays.shared}) {
        if (array->empty()) continue;
        (*array)[0] = (*array)[1] = 0xFFFF;
        (*array)[array->size() - 1] = (*array)[array->size() - 2] = 0xFFFF;
      }
    run(harness, inputs, call(form));
  }
  record_fault("the sentinel word at the ends of rows", kThreads, serves(Form::published) ? 4 : 3,
               "ended; equal bits on all ranks; NaN and Inf where the oracle has them");
}

// A pair (NaN 0xFFFF, number) is half a sentinel beside data: the number must not be lost.
TEST_P(EngineSpecials, HalfASentinelBesideANumber) {
  Harness harness(small_shape(2), options());
  auto& inputs = harness.make_inputs(GetParam().batch, call(Form::partial));
  for (auto& arrays : inputs.arrays) {
    arrays.shared[0] = 0xFFFF;
    arrays.shared[3] = 0xFFFF;
  }
  const Outputs& outputs = harness.enqueue(GetParam().batch, inputs, call(Form::partial));
  harness.world().synchronize();
  EXPECT_EQ(harness.judge(GetParam().batch, inputs, call(Form::partial), outputs), "");
  const auto is_nan = [](Bf16 value) { return (value & 0x7FFF) > 0x7F80; };
  EXPECT_TRUE(is_nan(outputs[0][0]) && !is_nan(outputs[0][1]) && !is_nan(outputs[0][2]) &&
              is_nan(outputs[0][3]));
  record_fault("half a sentinel beside a number", kThreads, 1, "the number is kept");
}

// Routing weights of every kind, among them the words that mean "dropped" and "not yet here" in front_poll
// mode.
TEST_P(EngineSpecials, Weights) {
  constexpr std::uint32_t kWords[] = {0xFFFFFFFFu, 0x7FFFFFFFu, 0x7FFFFFFEu, 0x80000000u, 0x00000000u,
                                      0x00000001u, 0x807FFFFFu, 0x7F800000u, 0xFF800000u, 0xFFC00000u,
                                      0x7F800001u, 0xBF800000u, 0x7F7FFFFFu};
  Harness harness(small_shape(2), options());
  for (Form form : {Form::expanded, Form::permuted, Form::published}) {
    if (!serves(form)) continue;
    for (std::uint32_t word : kWords) {
      SCOPED_TRACE(fmt::format("{} {:#010x}", protocol::form_name(form), word));
      auto& inputs = harness.make_inputs(GetParam().batch, call(form));
      inputs.arrays[1].weights_fp32[2] = std::bit_cast<float>(word);
      inputs.arrays[0].weights_fp32[inputs.arrays[0].weights_fp32.size() - 1] = std::bit_cast<float>(word);
      run(harness, inputs, call(form));
    }
  }
  CallOptions bf16 = call();
  bf16.inputs.weight_type = WeightType::bf16;
  for (std::uint32_t word : {0xFFFFu, 0x7FFFu, 0x8000u, 0x0001u, 0x7F80u, 0xFF80u}) {
    SCOPED_TRACE(fmt::format("bf16 {:#06x}", word));
    auto& inputs = harness.make_inputs(GetParam().batch, bf16);
    inputs.arrays[1].weights_bf16[2] = static_cast<Bf16>(word);
    run(harness, inputs, bf16);
  }
  record_fault("routing weights that are words of the polled slots, NaN, Inf, subnormal", kThreads,
               3 * 13 + 6, "ended; equal bits on all ranks; NaN and Inf where the oracle has them");
}

TEST_P(EngineSpecials, Gamma) {
  for (std::uint32_t word : {0x0000u, 0x8000u, 0x0001u, 0x7F80u, 0x7FC0u, 0xFFFFu, 0x7F7Fu, 0xBF80u}) {
    SCOPED_TRACE(fmt::format("{:#06x}", word));
    Harness harness(small_shape(2), options());
    harness.weights().gamma[5] = static_cast<Bf16>(word);
    run(harness, harness.make_inputs(GetParam().batch, call()), call());
  }
  record_fault("gamma that is 0, NaN, Inf, subnormal or the largest", kThreads, 8,
               "ended; equal bits on all ranks; NaN and Inf where the oracle has them");
}

TEST_P(EngineSpecials, ARowOfZeros) {
  Shape shape = small_shape(4);
  for (float eps : {1e-5f, 0.0f}) {  // with eps 0 the reciprocal root of a zero row is Inf, and 0 * Inf a NaN
    shape.eps = eps;
    Harness harness(shape, options());
    for (Bf16 zero : {Bf16{0x0000}, Bf16{0x8000}}) {
      SCOPED_TRACE(fmt::format("eps {} zero {:#06x}", eps, zero));
      auto& inputs = harness.make_inputs(GetParam().batch, call(Form::partial));
      for (auto& arrays : inputs.arrays) std::fill_n(arrays.partial.begin(), shape.latent, zero);
      run(harness, inputs, call(Form::partial));
    }
  }
  record_fault("a row of zeros, with eps and without", kThreads, 4,
               "ended; equal bits on all ranks; NaN and Inf where the oracle has them");
}

// Sums over ranks that overflow, cancel or stay subnormal.
TEST_P(EngineSpecials, ExtremesOverRanks) {
  Harness harness(small_shape(4), options());
  constexpr Bf16 kCases[][4] = {
      {0x7F7F, 0x7F7F, 0xFF7F, 0xFF7F},  // overflows on the way, in rank order
      {0x7F80, 0x3F80, 0xFF80, 0x3F80},  // Inf - Inf
      {0x0001, 0x0001, 0x0001, 0x8001},  // subnormal throughout
      {0x4B80, 0x3F80, 0xCB80, 0x3F80},  // 2^24 + 1 - 2^24 + 1
  };
  for (const auto& values : kCases) {
    SCOPED_TRACE(fmt::format("{:#06x} {:#06x} {:#06x} {:#06x}", values[0], values[1], values[2], values[3]));
    auto& inputs = harness.make_inputs(GetParam().batch, call(Form::partial));
    for (std::size_t rank = 0; rank < 4; ++rank) {
      inputs.arrays[rank].partial[7] = values[rank];
      inputs.arrays[rank].shared[9] = values[rank];
    }
    const Outputs& outputs = harness.enqueue(GetParam().batch, inputs, call(Form::partial));
    harness.world().synchronize();
    const auto problem = verify::make_problem(harness.shape(), GetParam().batch,
                                              GetParam().mode == Mode::twoshot, inputs, harness.weights());
    // Where addends cancel, the contract's order is the expectation, not the true sum.
    const auto rows =
        verify::check_rows(verify::expect(problem, {}, verify::RankSum::rank_order, 1), outputs[0]);
    EXPECT_TRUE(rows.passes()) << rows.text();
    for (std::size_t rank = 1; rank < 4; ++rank) EXPECT_EQ(outputs[rank], outputs[0]);
  }
  record_fault("sums over ranks that overflow, cancel or stay subnormal", kThreads, 4,
               "ended; equal bits on all ranks; NaN and Inf where the oracle has them");
}

}  // namespace
}  // namespace moetail::testing
