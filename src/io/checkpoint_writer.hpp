// SPDX-License-Identifier: Apache-2.0
// Writing checkpoints that bear Kimi K3's names, of any shape.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "io/tail_name.hpp"

namespace moetail::io {

/// The checkpoint to be written. The defaults are Kimi K3's.
struct CheckpointSpec {
  int layers = 92;          ///< MoE layers
  int first_layer = 1;      ///< index of the first one; K3's layer 0 is dense
  int hidden = 7168;        ///< H
  int latent = 3584;        ///< L
  int shards = 1;           ///< files, from 1 to two a layer
  std::string prefix = {};  ///< before "model.layers."; empty or with a dot at its end
};

/// Gives the bf16 bits of one tensor: `bits` has H*L elements for an up projection and L for a norm, zero on
/// entry.
using FillTensor = std::function<void(int layer, TailTensor tensor, std::span<std::uint16_t> bits)>;

/// Writes model-00001-of-0000N.safetensors to model-0000N-of-0000N.safetensors and
/// model.safetensors.index.json into `directory`, which is made if need be (its parent must exist). Tensors
/// are spread over the shards in the order of the layers, so that a layer's two may lie in different shards.
/// The same spec and contents give the same bytes. Memory: one tensor.
///
/// Throws Error(Code::invalid_argument) for a field of `spec` outside of what is accepted, and
/// Error(Code::file) or (Code::resource: the disk is full) for the files; a directory that already holds a
/// checkpoint is refused. After an error, an exception of `fill` included, what was written is removed again.
void write_checkpoint(const std::filesystem::path& directory, const CheckpointSpec& spec,
                      const FillTensor& fill);

/// True for the names that write_checkpoint gives to its files.
bool is_checkpoint_file(std::string_view name);

}  // namespace moetail::io
