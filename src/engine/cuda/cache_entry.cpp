// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/cache_entry.hpp"

#include <cstring>

namespace moetail::cuda {
namespace {

/// In the machine's byte order: a cache is one machine's. `magic` ends in the version of the format.
struct FileHeader {
  char magic[8] = {'m', 'o', 'e', 't', 'a', 'i', 'l', '1'};
  std::uint64_t checksum = 0;  ///< of everything after it
  std::uint64_t identity_bytes = 0;
  std::uint64_t name_bytes = 0;
  std::uint64_t cubin_bytes = 0;
  std::uint64_t num_registers = 0;
  std::uint64_t num_barriers = 0;
  std::uint64_t stack_bytes = 0;
  std::uint64_t spill_store_bytes = 0;
  std::uint64_t spill_load_bytes = 0;
  std::uint64_t static_shared_bytes = 0;
};
static_assert(sizeof(FileHeader) == 88 && offsetof(FileHeader, checksum) == 8);
constexpr std::size_t kChecked = offsetof(FileHeader, identity_bytes);

void append(std::vector<std::byte>& to, const void* from, std::size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(from);
  to.insert(to.end(), begin, begin + bytes);
}

}  // namespace

std::uint64_t hash_bytes(std::span<const std::byte> bytes) {
  std::uint64_t hash = 14695981039346656037u;
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<std::uint64_t>(byte)) * 1099511628211u;
  return hash;
}

std::uint64_t hash_text(std::string_view text) {
  return hash_bytes(std::as_bytes(std::span(text)));
}

std::vector<std::byte> pack_entry(std::string_view identity, const CompiledKernel& kernel) {
  const KernelUsage& usage = kernel.usage;
  FileHeader header;
  header.identity_bytes = identity.size();
  header.name_bytes = usage.name.size();
  header.cubin_bytes = kernel.cubin.size();
  header.num_registers = static_cast<std::uint64_t>(usage.num_registers);
  header.num_barriers = static_cast<std::uint64_t>(usage.num_barriers);
  header.stack_bytes = usage.stack_bytes;
  header.spill_store_bytes = usage.spill_store_bytes;
  header.spill_load_bytes = usage.spill_load_bytes;
  header.static_shared_bytes = usage.static_shared_bytes;
  std::vector<std::byte> file;
  append(file, &header, sizeof header);
  append(file, identity.data(), identity.size());
  append(file, usage.name.data(), usage.name.size());
  append(file, kernel.cubin.data(), kernel.cubin.size());
  header.checksum = hash_bytes(std::span(file).subspan(kChecked));
  std::memcpy(file.data(), &header, sizeof header);
  return file;
}

std::optional<CompiledKernel> unpack_entry(std::span<const std::byte> file, std::string_view identity) {
  FileHeader header;
  if (file.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, file.data(), sizeof header);
  if (std::memcmp(header.magic, FileHeader{}.magic, sizeof header.magic) != 0) return std::nullopt;
  if (header.checksum != hash_bytes(file.subspan(kChecked))) return std::nullopt;
  std::span<const std::byte> rest = file.subspan(sizeof header);
  // Each length against what is left, so that no sum can wrap around.
  const auto take = [&rest](std::uint64_t bytes) -> std::optional<std::span<const std::byte>> {
    if (bytes > rest.size()) return std::nullopt;
    const auto part = rest.first(static_cast<std::size_t>(bytes));
    rest = rest.subspan(part.size());
    return part;
  };
  const auto identity_part = take(header.identity_bytes);
  const auto name_part = identity_part ? take(header.name_bytes) : std::nullopt;
  const auto cubin_part = name_part ? take(header.cubin_bytes) : std::nullopt;
  if (!cubin_part || !rest.empty()) return std::nullopt;
  const auto text = [](std::span<const std::byte> part) {
    return std::string_view(reinterpret_cast<const char*>(part.data()), part.size());
  };
  if (text(*identity_part) != identity) return std::nullopt;
  CompiledKernel kernel;
  kernel.cubin.assign(cubin_part->begin(), cubin_part->end());
  kernel.usage.name = text(*name_part);
  kernel.usage.num_registers = static_cast<int>(header.num_registers);
  kernel.usage.num_barriers = static_cast<int>(header.num_barriers);
  kernel.usage.stack_bytes = header.stack_bytes;
  kernel.usage.spill_store_bytes = header.spill_store_bytes;
  kernel.usage.spill_load_bytes = header.spill_load_bytes;
  kernel.usage.static_shared_bytes = header.static_shared_bytes;
  return kernel;
}

}  // namespace moetail::cuda
