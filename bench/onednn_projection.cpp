// SPDX-License-Identifier: Apache-2.0
// Making and timing of the candidates.
#include "bench/onednn_projection.hpp"

#include <sys/mman.h>

#include <chrono>
#include <limits>
#include <optional>

#include "bench/statistics.hpp"

namespace moetail::bench {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
using Type = memory::data_type;
using Clock = std::chrono::steady_clock;

// A pass over all layers to warm up, then the timed ones.
constexpr int kPasses = 4;

enum class Kind { matmul, inner_product, inner_product_plain };
constexpr Kind kKinds[] = {Kind::matmul, Kind::inner_product, Kind::inner_product_plain};

struct Candidate {
  std::string name;
  dnnl::primitive primitive;
  memory::desc given, wanted;  ///< the same weights: as the layers have them, and as the primitive wants them
};

Candidate make_candidate(Kind kind, const dnnl::engine& engine, const BaselineSpec& spec) {
  const memory::dim batch = spec.batch, latent = spec.shape.latent, hidden = spec.shape.hidden;
  const memory::desc operand({batch, latent}, Type::bf16, Tag::ab),
      product({batch, hidden}, Type::f32, Tag::ab);
  if (kind == Kind::matmul) {
    const dnnl::matmul::desc desc(operand, {{latent, hidden}, Type::bf16, Tag::any}, product);
    const dnnl::matmul::primitive_desc primitive(desc, engine);
    return {std::string("matmul ") + primitive.impl_info_str(),
            dnnl::matmul(primitive),
            {{latent, hidden}, Type::bf16, Tag::ba},
            primitive.weights_desc()};
  }
  const bool is_plain = kind == Kind::inner_product_plain;
  const dnnl::inner_product_forward::desc desc(dnnl::prop_kind::forward_inference, operand,
                                               {{hidden, latent}, Type::bf16, is_plain ? Tag::ab : Tag::any},
                                               product);
  const dnnl::inner_product_forward::primitive_desc primitive(desc, engine);
  return {
      std::string(is_plain ? "inner product (plain weights) " : "inner product ") + primitive.impl_info_str(),
      dnnl::inner_product_forward(primitive),
      {{hidden, latent}, Type::bf16, Tag::ab},
      primitive.weights_desc()};
}

// oneDNN's own allocation, on huge pages where the system gives them, as the layers' weights are.
memory huge_memory(const memory::desc& desc, const dnnl::engine& engine) {
  constexpr std::uintptr_t kPage = 4096;
  memory made(desc, engine);
  const auto begin = reinterpret_cast<std::uintptr_t>(made.get_data_handle());
  const std::uintptr_t first = (begin + kPage - 1) / kPage * kPage,
                       last = (begin + desc.get_size()) / kPage * kPage;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
  return made;
}

std::vector<memory> weights_of(const Candidate& candidate, const dnnl::engine& engine,
                               const BaselineSpec& spec) {
  std::vector<memory> weights;
  dnnl::stream stream(engine);
  for (const BaselineLayer& layer : spec.layers) {
    memory given(candidate.given, engine, const_cast<Bf16*>(layer.up_proj));  // read only
    if (candidate.wanted == candidate.given) {
      weights.push_back(given);
      continue;
    }
    weights.push_back(huge_memory(candidate.wanted, engine));
    dnnl::reorder(given, weights.back()).execute(stream, given, weights.back());
    stream.wait();
  }
  return weights;
}

double median_us(const Projection& projection, const dnnl::engine& engine, const memory& operand,
                 const memory& product) {
  dnnl::stream stream(engine);
  std::vector<double> samples;
  for (int pass = 0; pass < kPasses; ++pass) {
    for (const memory& weights : projection.weights) {
      const auto begin = Clock::now();
      projection.primitive.execute(
          stream, {{DNNL_ARG_SRC, operand}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, product}});
      stream.wait();
      if (pass > 0)
        samples.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    }
  }
  return median(std::move(samples));
}

}  // namespace

Projection fastest_projection(const dnnl::engine& engine, const BaselineSpec& spec, const memory& operand,
                              const memory& product) {
  Projection best;
  double best_us = std::numeric_limits<double>::infinity();
  std::optional<dnnl::error> refused;
  for (const Kind kind : kKinds) {
    try {
      const Candidate candidate = make_candidate(kind, engine, spec);
      Projection next{candidate.name, candidate.primitive, weights_of(candidate, engine, spec)};
      const double next_us = median_us(next, engine, operand, product);
      if (next_us >= best_us) continue;
      best = std::move(next);
      best_us = next_us;
    } catch (const dnnl::error& error) {
      refused = error;
    }
  }
  if (best.weights.empty() && refused) throw *refused;
  return best;
}

}  // namespace moetail::bench
