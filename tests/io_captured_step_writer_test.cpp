// SPDX-License-Identifier: Apache-2.0
// The writer of captured steps refuses inputs that do not fit what it was told.

#include "io/captured_step.hpp"
#include "tests/io_testing.hpp"

namespace moetail::io {
namespace {

using io_testing::error_of;
using io_testing::expect_parts;
using io_testing::TempDir;

class StepWriter : public ::testing::Test {
 protected:
  StepWriter() {
    spec_.form = RoutedForm::permuted;
    spec_.layers = {3};
    spec_.ranks = 1;
    spec_.batch = 2;
    spec_.top_k = 2;
    spec_.latent = 8;
    spec_.hidden = 8;
    inputs_ = {.rows = values(3 * 8),
               .map = map_,
               .weights_f32 = weights_,
               .weights_bf16 = {},
               .partial = {},
               .shared = values(2 * 8),
               .residual = {}};
  }

  std::span<const std::uint16_t> values(std::size_t count) const { return std::span(values_).first(count); }

  void write() {
    write_captured_step(dir_ / "step", spec_, [&](int, int) { return inputs_; });
  }

  void refuse(const std::vector<std::string>& parts) {
    expect_parts(error_of(Code::invalid_argument, [&] { write(); }), parts);
    EXPECT_TRUE(dir_.list().empty());
  }

  TempDir dir_;
  StepSpec spec_;
  RankInputs inputs_;
  std::vector<std::uint16_t> values_ = std::vector<std::uint16_t>(64);
  std::vector<std::int32_t> map_{0, -1, 2, 1};
  std::vector<float> weights_{1, 2, 3, 4};
};

TEST_F(StepWriter, WritesWhatFits) {
  write();
  EXPECT_EQ(CapturedStep::open(dir_ / "step").inputs(3, 0).map[2], 2);
}

TEST_F(StepWriter, RefusesSpansThatDoNotFit) {
  const RankInputs right = inputs_;
  const auto refuse_with = [&](auto change, const std::vector<std::string>& parts) {
    inputs_ = right;
    change(inputs_);
    refuse(parts);
  };
  refuse_with([&](auto& in) { in.rows = values(20); },
              {"layer.3.rank.0.rows elements of BF16 = 20", "P*L = 16"});
  refuse_with([&](auto& in) { in.map = in.map.first(3); },
              {"layer.3.rank.0.map elements of I32 = 3", "B*K = 4"});
  refuse_with([&](auto& in) { in.weights_f32 = {}; }, {"weights elements of F32 = 0", "B*K = 4"});
  refuse_with([&](auto& in) { in.weights_bf16 = values(4); },
              {"weights elements of BF16 = 4", "none, by the spec"});
  refuse_with([&](auto& in) { in.partial = values(16); },
              {"partial elements of BF16 = 16", "none, by the spec"});
  refuse_with([&](auto& in) { in.shared = values(8); }, {"shared elements of BF16 = 8", "B*H = 16"});
  refuse_with([&](auto& in) { in.residual = values(16); },
              {"residual elements of BF16 = 16", "none, by the spec"});
  refuse_with([&](auto& in) { in.rows = values(16); }, {"layer.3.rank.0.map: token 1, k 0: 2", "P = 2"});
  spec_.has_residual = true;
  refuse_with([](auto&) {}, {"residual elements of BF16 = 0", "B*H = 16"});
  spec_.has_residual = false;
  spec_.form = RoutedForm::expanded;
  refuse_with([](auto& in) { in.map = {}; }, {"rows elements of BF16 = 24", "B*K*L = 32"});
}

TEST_F(StepWriter, RefusesWrongSpecs) {
  const StepSpec right = spec_;
  const auto refuse_with = [&](auto change, const std::vector<std::string>& parts) {
    spec_ = right;
    change(spec_);
    refuse(parts);
  };
  refuse_with([](auto& spec) { spec.layers.clear(); }, {"layers = none", "at least one"});
  refuse_with([](auto& spec) { spec.layers = {-1}; }, {"layer = -1", "0 to 99999"});
  refuse_with([](auto& spec) { spec.layers = {3, 3}; }, {"layers = 3,3", "each layer once"});
  refuse_with([](auto& spec) { spec.ranks = 0; }, {"ranks = 0", "at least 1"});
  refuse_with([](auto& spec) { spec.batch = 0; }, {"batch = 0", "at least 1"});
  refuse_with([](auto& spec) { spec.top_k = 0; }, {"top_k = 0", "at least 1"});
  refuse_with([](auto& spec) { spec.latent = -8; }, {"latent = -8", "at least 1"});
  refuse_with([](auto& spec) { spec.hidden = 0; }, {"hidden = 0", "at least 1"});
  refuse_with([](auto& spec) { spec.weights = Dtype::f16; }, {"weights = F16", "F32 or BF16"});
  refuse_with([](auto& spec) { spec.eps = -1.0; }, {"eps = -1", "0 to 1"});
}

}  // namespace
}  // namespace moetail::io
