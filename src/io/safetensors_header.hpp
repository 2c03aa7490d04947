// SPDX-License-Identifier: Apache-2.0
// The JSON header of a safetensors file, read strictly. Only the grammar is judged here; whether offsets,
// sizes and the file agree is the business of safetensors.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/dtype.hpp"

namespace moetail::io {

/// Largest header, in bytes; the limit of the format's reference reader.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

/// Most dimensions of a tensor. The format has no limit; this one keeps a hostile header from costing memory.
inline constexpr std::size_t kMaxDimensions = 64;

/// One tensor as the header describes it, nothing but its grammar checked.
struct HeaderEntry {
  std::string name;
  Dtype dtype = Dtype::u8;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;  ///< first byte, counted from the end of the header
  std::uint64_t end = 0;    ///< one past the last byte
};

struct Header {
  std::vector<HeaderEntry> entries;  ///< in the order of the header
  std::map<std::string, std::string> metadata;
};

/// Parses `text`, the header without its length. Throws Error(Code::file) starting with `file` if the text is
/// not one JSON object of tensors {"dtype": name, "shape": [sizes], "data_offsets": [begin, end]}, each field
/// exactly once, and at most one "__metadata__" object of strings; a name that occurs twice is not noticed
/// here (the caller sorts), a metadata key is. No recursion: depth costs no stack.
Header parse_header(std::string_view text, std::string_view file);

}  // namespace moetail::io
