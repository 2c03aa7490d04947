// SPDX-License-Identifier: Apache-2.0
// The index of a sharded checkpoint: which file holds which tensor.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/tail_name.hpp"

namespace moetail::io {

/// What the index of a sharded checkpoint is called.
inline constexpr const char* kIndexName = "model.safetensors.index.json";

/// Largest index, in bytes. A checkpoint of 92 layers with 896 experts has close to a million tensors of over
/// 100 bytes.
inline constexpr std::size_t kMaxIndexBytes = 1'000'000'000;

/// A tensor of the tail and the shard that the index gives for it.
struct WeightMapEntry {
  std::string name;
  TailName parts;
  std::string shard;  ///< relative to the index's directory, and inside of it
};

/// The tail's tensors under "weight_map" of the index `text`, in its order; everything else of the index may
/// be anything. Throws Error(Code::file) starting with `file` if the text is no JSON object, nests more than
/// 64 deep, has no or two weight maps, a weight map that does not map names to texts, a shard's path that is
/// empty, absolute, has a ".." part or a control character, or the same tensor of the tail twice.
std::vector<WeightMapEntry> parse_weight_map(std::string_view text, std::string_view file);

}  // namespace moetail::io
