// SPDX-License-Identifier: Apache-2.0
// Filling of the weights, all cores at it.
#include "cli/weights.hpp"

#include <algorithm>
#include <cmath>

#include "verify/generate.hpp"
#include "verify/parallel.hpp"

namespace moetail::cli {
namespace {

constexpr float kNormDeviation = 0.1f;

void copy(std::span<const Bf16> from, std::span<Bf16> to) {
  verify::for_parts(from.size(), 1 << 20, [&](int, protocol::u64 begin, protocol::u64 end) {
    std::copy(from.begin() + begin, from.begin() + end, to.begin() + begin);
  });
}

template <typename Fill>
std::vector<LayerWeights> make_weights(std::span<const int> layers, int hidden, int latent,
                                       Progress& progress, Fill fill) {
  std::vector<LayerWeights> weights;
  progress.begin(fmt::format("weights of {} layers", layers.size()), layers.size());
  for (const int layer : layers) {
    LayerWeights& one = weights.emplace_back();
    one.layer = layer;
    one.up_proj = Buffer<Bf16>(static_cast<std::size_t>(hidden) * static_cast<std::size_t>(latent));
    one.norm = Buffer<Bf16>(static_cast<std::size_t>(latent));
    fill(one);
    progress.advance();
  }
  progress.end();
  return weights;
}

}  // namespace

void fill_synthetic(std::uint64_t seed, int layer, io::TailTensor tensor, int latent, std::span<Bf16> bits) {
  if (tensor == io::TailTensor::up_proj) {
    const verify::Normal normal{1.0f / std::sqrt(static_cast<float>(latent)), 0.0f};
    verify::fill_normal_parallel({seed, verify::Stream::w_up, 0, layer}, normal, bits);
  } else {
    verify::fill_normal({seed, verify::Stream::gamma, 0, layer}, {kNormDeviation, 1.0f}, 0, bits);
  }
}

std::vector<LayerWeights> synthetic_weights(std::uint64_t seed, std::span<const int> layers, int hidden,
                                            int latent, Progress& progress) {
  return make_weights(layers, hidden, latent, progress, [&](LayerWeights& one) {
    fill_synthetic(seed, one.layer, io::TailTensor::up_proj, latent, one.up_proj.span());
    fill_synthetic(seed, one.layer, io::TailTensor::norm, latent, one.norm.span());
  });
}

std::vector<LayerWeights> checkpoint_weights(const io::Checkpoint& checkpoint, std::span<const int> layers,
                                             Progress& progress) {
  return make_weights(layers, checkpoint.hidden(), checkpoint.latent(), progress, [&](LayerWeights& one) {
    copy(checkpoint.up_proj(one.layer), one.up_proj.span());
    copy(checkpoint.norm(one.layer), one.norm.span());
  });
}

}  // namespace moetail::cli
