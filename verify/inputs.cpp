// SPDX-License-Identifier: Apache-2.0
// Puts the generators together into calls and layers.
#include "verify/inputs.hpp"

#include <cmath>

#include "base/error.hpp"

namespace moetail::verify {
namespace {

std::vector<u16> make_rows(const Key& key, float deviation, std::size_t size, const Specials& specials) {
  std::vector<u16> rows(size);
  fill_normal_parallel(key, {deviation, 0.0f}, rows);
  sprinkle(key, specials, 0, rows);
  return rows;
}

}  // namespace

CallInputs make_inputs(const Shape& shape, int batch, u64 seed, int layer, const InputOptions& options) {
  if (batch < 1) base::bad_argument("batch", batch, "1 or more");
  const std::size_t tokens = static_cast<std::size_t>(batch);
  const std::size_t latent = static_cast<std::size_t>(shape.latent);
  const std::size_t hidden = static_cast<std::size_t>(shape.hidden);
  const std::size_t routes = tokens * static_cast<std::size_t>(shape.top_k);
  CallInputs inputs;
  inputs.arrays.resize(static_cast<std::size_t>(shape.ranks));
  inputs.ranks.resize(static_cast<std::size_t>(shape.ranks));
  if (options.residual)
    inputs.residual = make_rows({seed, Stream::residual, 0, layer}, 1.0f, tokens * hidden, options.specials);
  const float shared_deviation = 1.0f / std::sqrt(static_cast<float>(shape.ranks));
  for (int r = 0; r < shape.ranks; ++r) {
    RankArrays& arrays = inputs.arrays[static_cast<std::size_t>(r)];
    RankInput& rank = inputs.ranks[static_cast<std::size_t>(r)];
    const auto key = [&](Stream stream) { return Key{seed, stream, r, layer}; };
    rank.form = options.form;
    rank.top_k = shape.top_k;
    rank.weight_type = options.weight_type;
    arrays.shared = make_rows(key(Stream::shared), shared_deviation, tokens * hidden, options.specials);
    rank.shared = arrays.shared.data();
    rank.residual = options.residual ? inputs.residual.data() : nullptr;
    if (options.form == Form::partial) {
      const float deviation = 1.0f / std::sqrt(static_cast<float>(shape.top_k));
      arrays.partial = make_rows(key(Stream::partial), deviation, tokens * latent, options.specials);
      rank.partial = arrays.partial.data();
      continue;
    }
    rank.num_rows = static_cast<int>(routes);
    if (options.form == Form::permuted) {
      RouteMap map =
          make_route_map(key(Stream::map), batch, shape.top_k, options.dropped_share, options.spare_rows);
      arrays.map = std::move(map.map);
      rank.map = arrays.map.data();
      rank.num_rows = map.num_rows;
    }
    arrays.rows = make_rows(key(Stream::rows), 1.0f, static_cast<std::size_t>(rank.num_rows) * latent,
                            options.specials);
    rank.rows = arrays.rows.data();
    if (options.weight_type == WeightType::bf16) {
      arrays.weights_bf16.resize(routes);
      fill_weights(key(Stream::weights), shape.top_k, 0, std::span(arrays.weights_bf16));
      rank.weights = arrays.weights_bf16.data();
    } else {
      arrays.weights_fp32.resize(routes);
      fill_weights(key(Stream::weights), shape.top_k, 0, std::span(arrays.weights_fp32));
      rank.weights = arrays.weights_fp32.data();
    }
  }
  return inputs;
}

LayerWeights make_layer(const Shape& shape, u64 seed, int layer, int threads) {
  const std::size_t latent = static_cast<std::size_t>(shape.latent);
  LayerWeights weights;
  weights.w_up.resize(static_cast<std::size_t>(shape.hidden) * latent);
  weights.gamma.resize(latent);
  const float deviation = 1.0f / std::sqrt(static_cast<float>(shape.latent));
  fill_normal_parallel({seed, Stream::w_up, 0, layer}, {deviation, 0.0f}, weights.w_up, threads);
  fill_normal({seed, Stream::gamma, 0, layer}, {0.1f, 1.0f}, 0, weights.gamma);
  return weights;
}

Problem make_problem(const Shape& shape, int batch, bool twoshot, const CallInputs& inputs,
                     const LayerWeights& layer) {
  return Problem{shape, batch, twoshot, inputs.ranks, layer.w_up.data(), layer.gamma.data()};
}

}  // namespace moetail::verify
