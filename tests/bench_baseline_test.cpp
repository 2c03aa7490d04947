// SPDX-License-Identifier: Apache-2.0
// What the benchmark compares with has to be right too: its loops against scalar ones, the whole pipeline against the oracle.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "bench/baseline.hpp"
#include "bench/row_loops.hpp"
#include "protocol/numerics.hpp"
#include "verify/compare.hpp"
#include "verify/generate.hpp"
#include "verify/inputs.hpp"

namespace moetail::bench {
namespace {

using protocol::bf16_from_f32;
using protocol::f32_from_bf16;

constexpr int kColumns = 24;  // whole vectors of eight, of no wider ones

std::vector<Bf16> numbers(std::uint64_t seed) {
  std::vector<Bf16> values(kColumns);
  verify::fill_normal({seed, verify::Stream::own, 0, 0}, {1.0f, 0.0f}, 0, values);
  return values;
}

TEST(BenchRowLoops, SumIsInOrder) {
  const std::vector<Bf16> a = numbers(1), b = numbers(2), c = numbers(3);
  const Bf16* rows[] = {a.data(), b.data(), c.data()};
  std::vector<float> sum(kColumns);
  sum_rows(rows, 3, kColumns, sum.data());
  for (std::size_t i = 0; i < kColumns; ++i)
    EXPECT_EQ(sum[i], (f32_from_bf16(a[i]) + f32_from_bf16(b[i])) + f32_from_bf16(c[i])) << i;
}

TEST(BenchRowLoops, NormIsWithinOneUlp) {
  const std::vector<Bf16> values = numbers(4), gamma = numbers(5);
  std::vector<float> x(kColumns);
  double squares = 0;
  for (std::size_t i = 0; i < kColumns; ++i) {
    x[i] = f32_from_bf16(values[i]);
    squares += double{x[i]} * x[i];
  }
  std::vector<Bf16> out(kColumns);
  rms_norm_row(x.data(), gamma.data(), 1e-5f, kColumns, out.data());
  for (std::size_t i = 0; i < kColumns; ++i) {
    const double expected = f32_from_bf16(gamma[i]) * x[i] / std::sqrt(squares / kColumns + 1e-5);
    EXPECT_LE(verify::ulp_distance_bf16(bf16_from_f32(static_cast<float>(expected)), out[i]), 1) << i;
  }
}

TEST(BenchRowLoops, AddsRoundOnce) {
  const std::vector<Bf16> a = numbers(6), b = numbers(7), residual = numbers(8);
  std::vector<float> product(kColumns, 0.3f);
  product[1] = std::numeric_limits<float>::quiet_NaN();
  product[2] = std::numeric_limits<float>::infinity();
  const Bf16* rows[] = {a.data(), b.data()};
  std::vector<Bf16> out(kColumns);
  for (const Bf16* added : {static_cast<const Bf16*>(nullptr), residual.data()}) {
    add_rows(product.data(), rows, 2, added, kColumns, out.data());
    for (std::size_t i = 0; i < kColumns; ++i) {
      float sum = product[i] + (f32_from_bf16(a[i]) + f32_from_bf16(b[i]));
      if (added != nullptr) sum += f32_from_bf16(added[i]);
      EXPECT_EQ(out[i], bf16_from_f32(sum)) << i;
    }
  }
}

// Layers and input sets of a small model, and the baseline over them.
class Pipeline {
 public:
  Pipeline(int ranks, int batch, const verify::InputOptions& options) {
    spec_.shape.ranks = ranks;
    spec_.shape.hidden = 384;
    spec_.shape.latent = 256;
    spec_.shape.top_k = 6;
    spec_.batch = batch;
    spec_.threads = 2;
    for (int layer = 0; layer < kLayers; ++layer) {
      weights_.push_back(verify::make_layer(spec_.shape, 7, layer, 1));
      layers_.push_back({weights_.back().w_up.data(), weights_.back().gamma.data()});
    }
    for (int set = 0; set < kSets; ++set) {
      inputs_.push_back(verify::make_inputs(spec_.shape, batch, 7, set, options));
      sets_.push_back(inputs_.back().ranks);
    }
    spec_.layers = layers_;
    spec_.sets = sets_;
  }

  const BaselineSpec& spec() const { return spec_; }
  std::vector<BaselineLayer>& layers() { return layers_; }
  verify::RowReport judge(const Baseline& baseline, int layer, int set) const {
    const auto problem =
        verify::make_problem(spec_.shape, spec_.batch, false, inputs_[static_cast<std::size_t>(set)],
                             weights_[static_cast<std::size_t>(layer)]);
    return verify::check_rows(verify::expect(problem, {}, verify::RankSum::float64, 1),
                              baseline.output(layer));
  }

  static constexpr int kLayers = 2, kSets = 2;

 private:
  BaselineSpec spec_;
  std::vector<verify::LayerWeights> weights_;
  std::vector<BaselineLayer> layers_;
  std::vector<verify::CallInputs> inputs_;
  std::vector<std::vector<verify::RankInput>> sets_;
};

// Null where this build or machine has no bf16 oneDNN.
std::unique_ptr<Baseline> make_or_skip(const BaselineSpec& spec, std::string& reason) {
  try {
    return make_onednn_baseline(spec);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unsupported);
    reason = error.what();
    return nullptr;
  }
}

TEST(BenchBaseline, MatchesTheOracle) {
  for (const Form form : {Form::expanded, Form::partial}) {
    for (const int ranks : {1, 8, 16}) {
      for (const int batch : {1, 3, 16}) {
        verify::InputOptions options;
        options.form = form;
        options.weight_type = WeightType::bf16;
        options.residual = batch == 3;
        const Pipeline pipeline(ranks, batch, options);
        std::string reason;
        const auto baseline = make_or_skip(pipeline.spec(), reason);
        if (!baseline) GTEST_SKIP() << reason;
        EXPECT_NE(baseline->description(), "");
        for (int layer = 0; layer < Pipeline::kLayers; ++layer) {
          const int set = 1 - layer;
          baseline->run_layer(layer, set);
          const verify::RowReport report = pipeline.judge(*baseline, layer, set);
          EXPECT_TRUE(report.passes())
              << "T=" << ranks << " B=" << batch << " layer " << layer << ": " << report.text();
          EXPECT_FALSE(pipeline.judge(*baseline, layer, 1 - set).passes()) << "rows of other inputs passed";
        }
      }
    }
  }
}

TEST(BenchBaseline, RefusesOtherForms) {
  verify::InputOptions options;
  options.form = Form::permuted;
  const Pipeline pipeline(2, 2, options);
  std::string reason;
  EXPECT_EQ(make_or_skip(pipeline.spec(), reason), nullptr);
  EXPECT_NE(reason, "");
}

}  // namespace
}  // namespace moetail::bench
