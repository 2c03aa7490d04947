// SPDX-License-Identifier: Apache-2.0
// Captured steps: all forms are read back as written. io_captured_step_rules_test.cpp has the defects.
#include "io/captured_step.hpp"

#include <map>
#include <numeric>

#include "tests/io_testing.hpp"

namespace moetail::io {
namespace {

using io_testing::error_of;
using io_testing::expect_parts;
using io_testing::TempDir;
using io_testing::write_file;

/// Owned inputs of one layer and rank, different everywhere.
struct Owned {
  Owned(const StepSpec& spec, int layer, int rank) {
    const auto elements = [](int height, int width) { return static_cast<std::size_t>(height * width); };
    const int num_rows = spec.form == RoutedForm::permuted ? rank * 3 : spec.batch * spec.top_k;
    number(rows, elements(num_rows, spec.latent), layer * 1000 + rank * 100);
    number(weights_bf16, elements(spec.batch, spec.top_k), layer + rank);
    number(weights_f32, elements(spec.batch, spec.top_k), layer + rank);
    number(map, elements(spec.batch, spec.top_k), 0);
    for (auto& row : map) row = row % 3 == 1 || num_rows == 0 ? -1 - row : row % num_rows;
    number(partial, elements(spec.batch, spec.latent), layer * 7 + rank);
    number(shared, elements(spec.batch, spec.hidden), layer * 9 + rank);
    number(residual, elements(spec.batch, spec.hidden), layer * 11 + rank);
    const bool has_rows = spec.form != RoutedForm::partial;
    if (has_rows) inputs.rows = rows;
    if (spec.form == RoutedForm::permuted) inputs.map = map;
    if (has_rows && spec.weights == Dtype::f32) inputs.weights_f32 = weights_f32;
    if (has_rows && spec.weights == Dtype::bf16) inputs.weights_bf16 = weights_bf16;
    if (!has_rows) inputs.partial = partial;
    inputs.shared = shared;
    if (spec.has_residual) inputs.residual = residual;
  }

  template <typename T>
  static void number(std::vector<T>& values, std::size_t count, int first) {
    values.resize(count);
    std::iota(values.begin(), values.end(), static_cast<T>(first));
  }

  std::vector<std::uint16_t> rows, weights_bf16, partial, shared, residual;
  std::vector<std::int32_t> map;
  std::vector<float> weights_f32;
  RankInputs inputs;
};

StepSpec small_spec(RoutedForm form) {
  StepSpec spec;
  spec.form = form;
  spec.layers = {1, 4};
  spec.ranks = 2;
  spec.batch = 3;
  // Odd, so that the bf16 tensors behind int32 and fp32 ones would lose their alignment in a naive order.
  spec.top_k = 3;
  spec.latent = 8;
  spec.hidden = 16;
  return spec;
}

/// Calls `use` with inputs that live meanwhile.
template <typename Use>
void with_inputs(const StepSpec& spec, Use&& use) {
  std::map<std::pair<int, int>, Owned> owned;
  for (const int layer : spec.layers) {
    for (int rank = 0; rank < spec.ranks; ++rank)
      owned.emplace(std::pair(layer, rank), Owned(spec, layer, rank));
  }
  // Moving a vector keeps its storage, so the spans made by the constructor still hold.
  use([&](int layer, int rank) { return owned.at({layer, rank}).inputs; });
}

template <typename T>
void expect_same(std::span<const T> actual, std::span<const T> expected) {
  EXPECT_EQ(std::vector<T>(actual.begin(), actual.end()), std::vector<T>(expected.begin(), expected.end()));
}

void expect_aligned(std::span<const std::uint16_t> values) {
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(values.data()) % 16, 0u);
}

TEST(CapturedStep, ReadsBackEveryForm) {
  for (const RoutedForm form : {RoutedForm::expanded, RoutedForm::permuted, RoutedForm::partial}) {
    for (const Dtype weights : {Dtype::f32, Dtype::bf16}) {
      for (const bool has_residual : {false, true}) {
        const TempDir dir;
        StepSpec spec = small_spec(form);
        spec.weights = weights;
        spec.has_residual = has_residual;
        spec.eps = 1e-5;
        with_inputs(spec, [&](const StepInputs& inputs) {
          write_captured_step(dir / "step", spec, inputs);
          const CapturedStep step = CapturedStep::open(dir / "step");
          EXPECT_EQ(step.spec().form, form);
          EXPECT_EQ(step.spec().weights, form == RoutedForm::partial ? Dtype::f32 : weights);
          EXPECT_EQ(step.spec().layers, spec.layers);
          EXPECT_EQ(step.spec().ranks, 2);
          EXPECT_EQ(step.spec().batch, 3);
          EXPECT_EQ(step.spec().top_k, 3);
          EXPECT_EQ(step.spec().latent, 8);
          EXPECT_EQ(step.spec().hidden, 16);
          EXPECT_EQ(step.spec().has_residual, has_residual);
          EXPECT_EQ(step.spec().eps, 1e-5);
          for (const int layer : spec.layers) {
            for (const int rank : {0, 1}) {
              const RankInputs& actual = step.inputs(layer, rank);
              const RankInputs expected = inputs(layer, rank);
              expect_same(actual.rows, expected.rows);
              expect_same(actual.map, expected.map);
              expect_same(actual.weights_f32, expected.weights_f32);
              expect_same(actual.weights_bf16, expected.weights_bf16);
              expect_same(actual.partial, expected.partial);
              expect_same(actual.shared, expected.shared);
              expect_same(actual.residual, expected.residual);
              for (const auto& values : {actual.rows, actual.partial, actual.shared, actual.residual})
                expect_aligned(values);
            }
          }
        });
      }
    }
  }
}

TEST(CapturedStep, InputsNamesWhatThereIs) {
  const TempDir dir;
  const StepSpec spec = small_spec(RoutedForm::partial);
  with_inputs(spec, [&](const StepInputs& inputs) { write_captured_step(dir / "step", spec, inputs); });
  const CapturedStep step = CapturedStep::open(dir / "step");
  expect_parts(error_of(Code::invalid_argument, [&] { step.inputs(2, 0); }), {"layer = 2", "\"1,4\""});
  expect_parts(error_of(Code::invalid_argument, [&] { step.inputs(1, 2); }), {"rank = 2", "0 to 1"});
}

TEST(CapturedStep, CopiesRowsThatTheFileDoesNotAlign) {
  const TempDir dir;
  std::string header = R"({"layer.0.rank.0.partial":{"dtype":"BF16","shape":[1,8],"data_offsets":[0,16]},)"
                       R"("layer.0.rank.0.shared":{"dtype":"BF16","shape":[1,8],"data_offsets":[16,32]}})";
  header.append(8 + 8 - header.size() % 16, ' ');
  ASSERT_EQ((8 + header.size()) % 16, 8u);
  write_file(dir / "step", io_testing::safetensors_bytes(header, 32));
  std::optional<CapturedStep> first = CapturedStep::open(dir / "step");
  const CapturedStep step = *first;
  first.reset();
  EXPECT_EQ(step.spec().top_k, 0);
  expect_aligned(step.inputs(0, 0).partial);
  expect_aligned(step.inputs(0, 0).shared);
  EXPECT_EQ(step.inputs(0, 0).partial[7], 0x0f0e);
  EXPECT_EQ(step.inputs(0, 0).shared[0], 0x1110);
}

}  // namespace
}  // namespace moetail::io
