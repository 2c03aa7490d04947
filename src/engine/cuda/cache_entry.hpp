// SPDX-License-Identifier: Apache-2.0
// One compiled kernel as a file: a fixed header with a checksum, the whole text that the kernel was made of, the machine code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/cuda/nvrtc.hpp"

namespace moetail::cuda {

struct CompiledKernel {
  std::vector<std::byte> cubin;
  KernelUsage usage;  ///< of the entry
};

/// FNV-1a, 64 bits: of names and checksums, not a defence against somebody who writes into the folder.
std::uint64_t hash_bytes(std::span<const std::byte> bytes);
std::uint64_t hash_text(std::string_view text);

/// The file's bytes. `identity` is compared when it is read again: two kernels of one name never mix.
std::vector<std::byte> pack_entry(std::string_view identity, const CompiledKernel& kernel);

/// The kernel in a file's bytes, or nothing where they are truncated, damaged, of another format or of another identity.
std::optional<CompiledKernel> unpack_entry(std::span<const std::byte> file, std::string_view identity);

}  // namespace moetail::cuda
