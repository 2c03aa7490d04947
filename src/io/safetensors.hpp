// SPDX-License-Identifier: Apache-2.0
// Reading safetensors files: a checked, zero-copy view of their tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/dtype.hpp"

namespace moetail::io {

/// One tensor of a file: row-major, packed, little-endian.
struct Tensor {
  std::string name;
  Dtype dtype = Dtype::u8;
  std::vector<std::uint64_t> shape;  ///< outermost first; empty for a scalar
  std::uint64_t num_elements = 0;
  std::span<const std::byte> bytes;  ///< valid while any copy of the file's SafetensorsFile lives
};

/// A safetensors file whose every rule has been checked. Copies are cheap and share the bytes, which stay
/// mapped until the last copy is gone. Immutable, so any number of threads may read it.
class SafetensorsFile {
 public:
  /// Maps `path` and checks it. Throws Error(Code::file) that names the file, the tensor, the offending value
  /// and what is accepted; docs/checkpoints.md lists all rules. The file must not be shortened while it is
  /// open (see MappedFile).
  static SafetensorsFile open(const std::filesystem::path& path);

  /// The file as the caller named it; the start of every error message about it.
  const std::string& name() const noexcept;

  /// All tensors, sorted by name (bytewise).
  std::span<const Tensor> tensors() const noexcept;

  /// The texts under "__metadata__"; empty where there are none.
  const std::map<std::string, std::string>& metadata() const noexcept;

  /// The tensor with that name, or null.
  const Tensor* find(std::string_view name) const noexcept;

  /// The tensor with that name. Throws Error(Code::file) where there is none.
  const Tensor& at(std::string_view name) const;

  /// The tensor's elements without a copy. `T` has the size of `dtype` (bf16 is read as std::uint16_t bits).
  /// Throws Error(Code::file) if the tensor has another dtype or its data does not start at a multiple of
  /// sizeof(T), which the format does not promise; Error(Code::internal) if T and dtype differ in size.
  template <typename T>
  std::span<const T> elements(const Tensor& tensor, Dtype dtype) const {
    check_elements(tensor, dtype, sizeof(T), alignof(T));
    if (tensor.bytes.empty()) return {};  // their place need not be aligned
    return {reinterpret_cast<const T*>(tensor.bytes.data()), tensor.bytes.size() / sizeof(T)};
  }

 private:
  friend SafetensorsFile parse_safetensors(std::span<const std::byte> bytes, std::string name,
                                           std::shared_ptr<const void> owner);
  struct Contents;

  explicit SafetensorsFile(std::shared_ptr<const Contents> contents) : contents_(std::move(contents)) {}
  void check_elements(const Tensor& tensor, Dtype dtype, std::size_t size, std::size_t alignment) const;

  std::shared_ptr<const Contents> contents_;
};

/// The same from bytes in memory, which are not copied: they belong to `owner`, or else the caller keeps them
/// alive and unchanged as long as any copy of the result lives. `name` stands for the file in error messages.
SafetensorsFile parse_safetensors(std::span<const std::byte> bytes, std::string name,
                                  std::shared_ptr<const void> owner = nullptr);

}  // namespace moetail::io
