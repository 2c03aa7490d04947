// SPDX-License-Identifier: Apache-2.0
// The up projections and norm weights of a run: synthetic ones, or a checkpoint's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cli/buffer.hpp"
#include "cli/progress.hpp"
#include "io/checkpoint.hpp"
#include "io/tail_name.hpp"
#include "moetail/moetail.hpp"

namespace moetail::cli {

struct LayerWeights {
  int layer = 0;         ///< its index in the model; labels the layer's calls
  Buffer<Bf16> up_proj;  ///< [H, L]
  Buffer<Bf16> norm;     ///< [L]
};

/// Bits of one synthetic tensor ([H, L] or [L]): the same for the same seed and layer, in memory and in a checkpoint. Up
/// projections have deviation 1/sqrt(L), so that output rows have unit size; norms lie around 1.
void fill_synthetic(std::uint64_t seed, int layer, io::TailTensor tensor, int latent, std::span<Bf16> bits);

std::vector<LayerWeights> synthetic_weights(std::uint64_t seed, std::span<const int> layers, int hidden,
                                            int latent, Progress& progress);

/// Copies, because the format aligns tensors to 2 bytes and because pages of a file are small and may be dropped.
std::vector<LayerWeights> checkpoint_weights(const io::Checkpoint& checkpoint, std::span<const int> layers,
                                             Progress& progress);

}  // namespace moetail::cli
