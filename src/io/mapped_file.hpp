// SPDX-License-Identifier: Apache-2.0
// A file mapped read-only into memory, unmapped with its last owner.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace moetail::io {

/// The bytes of a regular file as they are on disk. The start of the mapping is aligned to a page.
///
/// Contract: nobody shortens the file while it is mapped. Reading a page that no longer exists raises SIGBUS,
/// which no check made here can prevent. Replacing the file by rename is fine: the mapping keeps the old
/// contents.
class MappedFile {
 public:
  /// Maps `path`. Throws Error(Code::file) naming the path and what is accepted if it cannot be opened, is
  /// not a regular file (directories, pipes and devices are refused without being read) or is empty;
  /// Error(Code::resource) if the machine has no room for the mapping.
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  MappedFile() = default;

  std::span<const std::byte> bytes_;
};

}  // namespace moetail::io
