// SPDX-License-Identifier: Apache-2.0
// The layer loop of the oneDNN pipeline: finalize, sum, norm, up projection, adds.
#include <omp.h>

#include <algorithm>

#include "base/error.hpp"
#include "bench/baseline.hpp"
#include "bench/onednn_projection.hpp"
#include "bench/row_loops.hpp"
#include "protocol/numerics.hpp"

namespace moetail::bench {
namespace {

using dnnl::memory;

std::size_t product(int a, int b) {
  return static_cast<std::size_t>(a) * static_cast<std::size_t>(b);
}

/// One input set as oneDNN takes it.
struct InputSet {
  memory weights, rows;                      // expanded: [T*B, 1, K] and [T*B, K, L]
  std::vector<const Bf16*> partial, shared;  // by rank, [B, L] and [B, H]; expanded: no partial
  const Bf16* residual = nullptr;            // [B, H] or null
};

class OneDnnPipeline : public Baseline {
 public:
  explicit OneDnnPipeline(const BaselineSpec& spec)
      : spec_(spec),
        engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_),
        is_expanded_(spec.sets.front().front().form == Form::expanded),
        operand_(
            make_memory({{spec.batch, spec.shape.latent}, memory::data_type::bf16, memory::format_tag::ab})),
        product_(
            make_memory({{spec.batch, spec.shape.hidden}, memory::data_type::f32, memory::format_tag::ab})),
        sum_(product(spec.batch, spec.shape.latent)),
        outputs_(spec.layers.size() * product(spec.batch, spec.shape.hidden)) {
    // Both oneDNN and the loops below take their threads from OpenMP.
    omp_set_num_threads(spec.threads);
    if (is_expanded_) make_finalize();
    for (const auto& ranks : spec.sets) sets_.push_back(make_set(ranks));
    projection_ = fastest_projection(engine_, spec, operand_, product_);
  }

  std::string description() const override {
    return (is_expanded_ ? "bmm, " : "") + std::string("sum, RMSNorm, ") + projection_.name + ", adds";
  }

  void run_layer(int layer, int set) override {
    const InputSet& inputs = sets_[static_cast<std::size_t>(set)];
    if (is_expanded_)
      finalize_.execute(
          stream_,
          {{DNNL_ARG_SRC, inputs.weights}, {DNNL_ARG_WEIGHTS, inputs.rows}, {DNNL_ARG_DST, partials_}});
    normalize(inputs, spec_.layers[static_cast<std::size_t>(layer)].norm);
    projection_.primitive.execute(stream_,
                                  {{DNNL_ARG_SRC, operand_},
                                   {DNNL_ARG_WEIGHTS, projection_.weights[static_cast<std::size_t>(layer)]},
                                   {DNNL_ARG_DST, product_}});
    add(inputs, output_data(layer));
  }

  std::span<const Bf16> output(int layer) const override {
    const std::size_t rows = product(spec_.batch, spec_.shape.hidden);
    return {outputs_.data() + static_cast<std::size_t>(layer) * rows, rows};
  }

 private:
  memory make_memory(const memory::desc& desc) const { return memory(desc, engine_); }

  Bf16* output_data(int layer) {
    return outputs_.data() + static_cast<std::size_t>(layer) * product(spec_.batch, spec_.shape.hidden);
  }

  memory::desc batched(int rows, int columns) const {
    return {
        {spec_.shape.ranks * spec_.batch, rows, columns}, memory::data_type::bf16, memory::format_tag::abc};
  }

  void make_finalize() {
    const int top_k = spec_.shape.top_k, latent = spec_.shape.latent;
    const dnnl::matmul::desc desc(batched(1, top_k), batched(top_k, latent), batched(1, latent));
    finalize_ = dnnl::matmul(dnnl::matmul::primitive_desc(desc, engine_));
    partials_ = make_memory(batched(1, latent));
  }

  InputSet make_set(const std::vector<verify::RankInput>& ranks) const {
    const Shape& shape = spec_.shape;
    InputSet set;
    set.residual = ranks.front().residual;
    for (const verify::RankInput& input : ranks) {
      set.shared.push_back(input.shared);
      if (!is_expanded_) set.partial.push_back(input.partial);
    }
    if (!is_expanded_) return set;
    set.weights = make_memory(batched(1, shape.top_k));
    set.rows = make_memory(batched(shape.top_k, shape.latent));
    Bf16* weights = static_cast<Bf16*>(set.weights.get_data_handle());
    Bf16* rows = static_cast<Bf16*>(set.rows.get_data_handle());
    for (const verify::RankInput& input : ranks) {
      for (int token = 0; token < spec_.batch; ++token)
        for (int k = 0; k < shape.top_k; ++k)
          *weights++ = protocol::bf16_from_f32(verify::route_weight(input, token, k));
      rows = std::copy_n(input.rows, product(spec_.batch * shape.top_k, shape.latent), rows);
    }
    return set;
  }

  const Bf16* partial_row(const InputSet& inputs, int rank, int token) const {
    const Bf16* rank_rows = is_expanded_ ? static_cast<const Bf16*>(partials_.get_data_handle()) +
                                               product(rank * spec_.batch, spec_.shape.latent)
                                         : inputs.partial[static_cast<std::size_t>(rank)];
    return rank_rows + product(token, spec_.shape.latent);
  }

  // oneDNN's layer normalization subtracts the mean; its reduction, eltwise and binary primitives would start the threads three
  // times for a few microseconds of work, as would its sum. This loop starts them once.
  void normalize(const InputSet& inputs, const Bf16* norm) {
    const Shape& shape = spec_.shape;
    Bf16* operand = static_cast<Bf16*>(operand_.get_data_handle());
#pragma omp parallel for schedule(static)
    for (int token = 0; token < spec_.batch; ++token) {
      const Bf16* rows[protocol::kMaxRanks];
      for (int rank = 0; rank < shape.ranks; ++rank) rows[rank] = partial_row(inputs, rank, token);
      float* sum = sum_.data() + product(token, shape.latent);
      sum_rows(rows, shape.ranks, shape.latent, sum);
      rms_norm_row(sum, norm, shape.eps, shape.latent, operand + product(token, shape.latent));
    }
  }

  void add(const InputSet& inputs, Bf16* out) {
    const Shape& shape = spec_.shape;
    const float* products = static_cast<const float*>(product_.get_data_handle());
    // Pieces of a row, so that one token is work for all threads too.
    const int pieces = std::min(spec_.threads, shape.hidden / 8);
#pragma omp parallel for schedule(static) collapse(2)
    for (int token = 0; token < spec_.batch; ++token) {
      for (int piece = 0; piece < pieces; ++piece) {
        const int begin = shape.hidden / 8 * piece / pieces * 8,
                  end = shape.hidden / 8 * (piece + 1) / pieces * 8;
        const std::size_t at = product(token, shape.hidden) + static_cast<std::size_t>(begin);
        const Bf16* rows[protocol::kMaxRanks];
        for (int rank = 0; rank < shape.ranks; ++rank)
          rows[rank] = inputs.shared[static_cast<std::size_t>(rank)] + at;
        add_rows(products + at, rows, shape.ranks,
                 inputs.residual == nullptr ? nullptr : inputs.residual + at, end - begin, out + at);
      }
    }
  }

  const BaselineSpec spec_;
  dnnl::engine engine_;
  dnnl::stream stream_;  // on a CPU a primitive has finished when execute returns
  const bool is_expanded_;
  memory operand_, product_, partials_;
  std::vector<float> sum_;     // [B, L]
  std::vector<Bf16> outputs_;  // [layers, B, H]
  std::vector<InputSet> sets_;
  dnnl::matmul finalize_;
  Projection projection_;
};

}  // namespace

std::unique_ptr<Baseline> make_onednn_baseline(const BaselineSpec& spec) {
  const Form form = spec.sets.front().front().form;
  if (form != Form::expanded && form != Form::partial)
    base::fail(Code::unsupported, "form = {}: the oneDNN pipeline takes rows or partial",
               protocol::form_name(form));
  try {
    return std::make_unique<OneDnnPipeline>(spec);
  } catch (const dnnl::error& error) {
    base::fail(Code::unsupported, "oneDNN cannot run bf16 here: {}", error.message);
  }
}

std::uint64_t onednn_baseline_bytes(const BaselineSpec& spec) {
  const std::uint64_t weights = 2 * spec.layers.size() * product(spec.shape.hidden, spec.shape.latent);
  const std::uint64_t rows = 2 * spec.sets.size() * product(spec.shape.ranks * spec.batch, spec.shape.top_k) *
                             static_cast<std::uint64_t>(spec.shape.latent);
  return 2 * weights + rows;  // two of the layouts that are tried are copies
}

}  // namespace moetail::bench
