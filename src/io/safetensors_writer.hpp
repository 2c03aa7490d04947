// SPDX-License-Identifier: Apache-2.0
// Writing safetensors files tensor by tensor, without holding them in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/atomic_file.hpp"
#include "io/dtype.hpp"

namespace moetail::io {

/// A tensor to be written.
struct TensorSpec {
  std::string name;
  Dtype dtype = Dtype::u8;
  std::vector<std::uint64_t> shape;
};

/// Writes one file: all tensors are announced first, then their bytes arrive in any order, in pieces of any
/// size; a tensor's own pieces arrive in order. The file bears its name only after `finish`; without it
/// nothing is left.
///
/// The same tensors and metadata give the same bytes, whatever the order they are announced or written in.
/// Layout: the header is padded with spaces so that the data starts at a multiple of 64 bytes of the file;
/// first come the tensors whose size is a multiple of 16 bytes, each of which therefore starts at one too,
/// then the others by falling element size; within those by name. So every tensor is aligned for its dtype.
///
/// Errors: Error(Code::invalid_argument) for wrong calls, Error(Code::file) or (Code::resource: the disk is
/// full) for the file. After an error the writer is only good for destruction.
class SafetensorsWriter {
 public:
  /// Checks the announced tensors (names unique, UTF-8 and not "__metadata__", sizes that fit, at most 64
  /// dimensions, header of at most 100 MB) and writes the header to a temporary file beside `path`.
  SafetensorsWriter(const std::filesystem::path& path, std::span<const TensorSpec> tensors,
                    const std::map<std::string, std::string>& metadata = {});

  /// Appends bytes to the tensor `name`. More than its size is an error.
  void append(std::string_view name, std::span<const std::byte> bytes);

  /// Appends elements; their size must be that of the tensor's dtype.
  template <typename T>
  void append_elements(std::string_view name, std::span<const T> elements) {
    check_element_size(name, sizeof(T));
    append(name, std::as_bytes(elements));
  }

  /// Checks that every tensor is complete and gives the file its name. Call once, last.
  void finish();

 private:
  struct Slot {
    TensorSpec spec;
    std::uint64_t begin = 0;    // in the file
    std::uint64_t size = 0;     // bytes
    std::uint64_t written = 0;  // bytes
  };

  Slot& slot(std::string_view name);
  void check_element_size(std::string_view name, std::size_t size);

  base::AtomicFile file_;
  std::vector<Slot> slots_;                                  // in the order of the file
  std::map<std::string, std::size_t, std::less<>> by_name_;  // index into slots_
};

}  // namespace moetail::io
