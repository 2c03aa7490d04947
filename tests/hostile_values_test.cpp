// SPDX-License-Identifier: Apache-2.0
// Every 16-bit pattern in every kind of input, one where a NaN would hide its neighbours, and every word of which one half looks like half a
// sentinel: no hang, equal bits on all ranks, NaN and Inf exactly where plain fp32 evaluation in the contract's order has them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/harness.hpp"
#include "tests/record.hpp"
#include "tests/value_classes.hpp"
#include "tests/variants.hpp"
#include "verify/emulate.hpp"

namespace moetail::testing {
namespace {

constexpr std::uint32_t kPatterns = 0x10000;
constexpr int kBatch = 8;
constexpr const char* kRight =
    "ended; equal bits on all ranks; NaN and Inf where plain fp32 evaluation has them";

/// The patterns of a run where each costs a token or a call: all, or those near a sentinel or at the ends of a class and each 61st.
std::vector<Bf16> patterns() {
  std::vector<Bf16> some;
  for (std::uint32_t pattern = 0; pattern < kPatterns; ++pattern) {
    const auto value = static_cast<Bf16>(pattern);
    if (is_thorough() || is_at_an_end(value) || pattern % 61 == 0) some.push_back(value);
  }
  return some;
}

class HostileValues : public ::testing::TestWithParam<Variant> {
 protected:
  HostileValues() {
    call_.mode = GetParam().mode;
    call_.inputs.residual = true;
    call_.inputs.weight_type = WeightType::bf16;
  }

  /// One call of `batch` tokens on `inputs`, judged in every way. The harness keeps all outputs, so it is made anew now and then.
  void run(int batch, const verify::CallInputs& inputs, const std::string& what) {
    if (++calls_ % 1024 == 0) remake();
    const Outputs& outputs = harness_->enqueue(batch, inputs, call_);
    harness_->world().synchronize();
    const auto problem =
        verify::make_problem(harness_->shape(), batch, call_.mode == Mode::twoshot, inputs, weights_);
    if (!whole_rows_) {
      EXPECT_EQ(other_class(verify::emulate(problem), outputs[0]), "") << what;
    }
    EXPECT_EQ(harness_->judge(batch, inputs, call_, outputs), "") << what;
  }

  verify::CallInputs inputs(int batch) const {
    return verify::make_inputs(harness_->shape(), batch, 1, 0, call_.inputs);
  }

  /// Puts each of `patterns()` into a token of its own by `put(arrays, token, pattern)`.
  std::uint64_t one_a_token(const std::function<void(verify::RankArrays&, std::size_t, Bf16)>& put) {
    const auto all = patterns();
    for (std::size_t begin = 0; begin < all.size() && !HasFailure(); begin += kBatch) {
      auto given = inputs(kBatch);
      for (std::size_t token = 0; token < kBatch; ++token)
        put(given.arrays[1], token, all[std::min(begin + token, all.size() - 1)]);
      run(kBatch, given, fmt::format("patterns from {:#06x}", all[begin]));
    }
    return all.size();
  }

  void remake() {
    harness_ = std::make_unique<Harness>(small_shape(2), options());
    harness_->weights().gamma = weights_.gamma;
  }
  /// Batches of 1, 3 and 8 all share in the variant of that name, and none of them does in the others.
  static HarnessOptions options() {
    HarnessOptions options;
    options.policy =
        std::string(GetParam().name) == "sharing" ? R"({"share_from": 1})" : R"({"share_from": 99})";
    return options;
  }

  /// A weight near the largest number makes a whole row as large, and whether a dot of such a row leaves fp32's range on the way depends on
  /// the order of its target, which is the engine's own (docs/protocol.md): the oracle, which knows that, judges alone.
  bool whole_rows_ = false;
  CallOptions call_;
  std::unique_ptr<Harness> harness_ = std::make_unique<Harness>(small_shape(2), options());
  verify::LayerWeights weights_ = harness_->weights();
  std::uint64_t calls_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Modes, HostileValues, ::testing::ValuesIn(variants()), variant_name);

TEST_P(HostileValues, EveryPatternAsARoutedRow) {
  const auto latent = static_cast<std::size_t>(harness_->shape().latent);
  const std::size_t row = static_cast<std::size_t>(harness_->shape().top_k) * latent;
  const auto tries = one_a_token([&](verify::RankArrays& arrays, std::size_t token, Bf16 value) {
    arrays.rows[token * row + latent + 9] = value;
  });
  record_fault("16-bit patterns: routed row", kThreads, tries, kRight);
}

TEST_P(HostileValues, EveryPatternAsARoutingWeight) {
  const auto top_k = static_cast<std::size_t>(harness_->shape().top_k);
  whole_rows_ = true;
  const auto tries = one_a_token([&](verify::RankArrays& arrays, std::size_t token, Bf16 value) {
    arrays.weights_bf16[token * top_k + 2] = value;
  });
  record_fault("16-bit patterns: routing weight", kThreads, tries,
               "ended; equal bits on all ranks; NaN and Inf where the oracle has them");
}

TEST_P(HostileValues, EveryPatternAsGamma) {
  auto given = inputs(1);
  const auto all = patterns();
  for (const Bf16 value : all) {
    weights_.gamma[11] = harness_->weights().gamma[11] = value;
    run(1, given, fmt::format("gamma {:#06x}", value));
    if (HasFailure()) break;
  }
  record_fault("16-bit patterns: gamma", kThreads, all.size(), kRight);
}

// An element of these decides one element of the output alone, so that all of them fit a few calls.
TEST_P(HostileValues, EveryPatternAsASharedAndAsAResidualValue) {
  const auto hidden = static_cast<std::size_t>(harness_->shape().hidden);
  for (const bool shared : {true, false}) {
    for (std::uint32_t begin = 0; begin < kPatterns && !HasFailure(); begin += kBatch * hidden) {
      auto given = inputs(kBatch);
      auto& values = shared ? given.arrays[1].shared : given.residual;
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<Bf16>(std::min<std::size_t>(begin + i, kPatterns - 1));
      run(kBatch, given, fmt::format("{} from {:#06x}", shared ? "shared" : "residual", begin));
    }
  }
  record_fault("16-bit patterns: shared and residual value", kThreads, 2 * kPatterns, kRight);
}

// A word of which one half is 0xFFFF is half a sentinel, and its other half may not be lost.
TEST_P(HostileValues, EveryWordThatIsHalfASentinel) {
  const auto hidden = static_cast<std::size_t>(harness_->shape().hidden);
  const std::uint32_t step = is_thorough() ? 1 : 5;
  std::uint64_t tries = 0;
  for (const std::size_t half : {0u, 1u}) {
    for (std::uint32_t begin = 0; begin < kPatterns && !HasFailure(); begin += step * kBatch * hidden / 2) {
      auto given = inputs(kBatch);
      auto& values = given.arrays[0].shared;
      for (std::size_t word = 0; word < values.size() / 2; ++word) {
        values[2 * word + half] = 0xFFFF;
        values[2 * word + 1 - half] =
            static_cast<Bf16>(std::min<std::size_t>(begin + step * word, kPatterns - 1));
        ++tries;
      }
      run(kBatch, given, fmt::format("half {} from {:#06x}", half, begin));
    }
  }
  record_fault("words that are half a sentinel: shared partial", kThreads, tries, kRight);
}

TEST_P(HostileValues, RowsOfOneNanOrInfinityThroughout) {
  std::uint64_t tries = 0;
  for (const Bf16 value : {0x7F80, 0xFF80, 0x7F81, 0x7FC0, 0x7FFF, 0xFF81, 0xFFFE, 0xFFFF}) {
    for (const bool everywhere : {false, true}) {
      auto given = inputs(3);
      for (auto& arrays : given.arrays) {
        std::fill(arrays.rows.begin(),
                  everywhere ? arrays.rows.end() : arrays.rows.begin() + harness_->shape().latent, value);
        if (everywhere) std::fill(arrays.shared.begin(), arrays.shared.end(), value);
      }
      run(3, given, fmt::format("{:#06x}{}", value, everywhere ? " everywhere" : ""));
      ++tries;
    }
  }
  record_fault("rows of one NaN or Inf throughout", kThreads, tries, kRight);
}

// The control: an output that lost one NaN, or has one too many, does not pass.
TEST(HostileValuesControl, AnotherClassIsSeen) {
  const std::vector<Bf16> numbers(4, 0x3F80);
  for (const Bf16 value : {0x7FFF, 0x7F80, 0xFF80}) {
    auto changed = numbers;
    changed[2] = value;
    EXPECT_NE(other_class(numbers, changed), "");
    EXPECT_NE(other_class(changed, numbers), "");
    EXPECT_EQ(other_class(changed, changed), "");
  }
}

}  // namespace
}  // namespace moetail::testing
