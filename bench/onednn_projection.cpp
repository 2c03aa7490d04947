// SPDX-License-Identifier: Apache-2.0
// Making and timing of the candidates.
#include "bench/onednn_projection.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "bench/statistics.hpp"

namespace moetail::bench {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
using Type = memory::data_type;
using Clock = std::chrono::steady_clock;

// Timed passes over all layers, of every candidate.
constexpr int kPasses = 6;

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

/// A candidate in the running.
struct Entry {
  Projection projection;
  std::vector<double> layer_us;
};

// One pass over all layers.
void run_pass(Entry& entry, const dnnl::engine& engine, const memory& operand, const memory& product) {
  dnnl::stream stream(engine);
  for (const memory& weights : entry.projection.weights) {
    const auto begin = Clock::now();
    entry.projection.primitive.execute(
        stream, {{DNNL_ARG_SRC, operand}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, product}});
    stream.wait();
    entry.layer_us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
}

}  // namespace

Projection fastest_projection(const dnnl::engine& engine, const BaselineSpec& spec, const memory& operand,
                              const memory& product) {
  std::vector<Entry> entries;
  std::optional<dnnl::error> refused;
  for (const Kind kind : kKinds) {
    try {
      const Candidate candidate = make_candidate(kind, engine, spec);
      entries.push_back({{candidate.name, candidate.primitive, weights_of(candidate, engine, spec)}, {}});
    } catch (const dnnl::error& error) {
      refused = error;
    }
  }
  if (entries.empty()) throw *refused;
  // In turn, and the lower quartile: what disturbs one of them for a while must not decide.
  for (int pass = 0; pass <= kPasses; ++pass) {
    for (Entry& entry : entries) {
      if (pass == 1) entry.layer_us.clear();  // the first one warms up
      run_pass(entry, engine, operand, product);
    }
  }
  const auto is_faster = [](const Entry& a, const Entry& b) {
    return quantile(a.layer_us, 0.25) < quantile(b.layer_us, 0.25);
  };
  return std::move(std::min_element(entries.begin(), entries.end(), is_faster)->projection);
}

}  // namespace moetail::bench
