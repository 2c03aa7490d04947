// SPDX-License-Identifier: Apache-2.0
// A file that appears under its name complete or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace moetail::base {

/// Writes to a temporary name beside the target ("NAME.tmp-PID-N") and renames at the end. Whoever reads the
/// target sees the old file or the whole new one. Without `commit`, the destructor removes the temporary;
/// only a process that is killed leaves it behind.
///
/// Errors name the target: Error(Code::file) in general, Error(Code::resource) if the disk is full.
class AtomicFile {
 public:
  /// Creates the temporary. Throws if the target exists and is no regular file, or nothing can be created
  /// beside it. `mode`: of a new file, as open(2) has it.
  explicit AtomicFile(std::filesystem::path target, int mode = 0666);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Writes all of `bytes` at byte `offset` of the file.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);

  /// Brings the bytes to the disk and gives the file its name, replacing what bore it. Call once, last.
  void commit();

  const std::filesystem::path& target() const noexcept { return target_; }

 private:
  [[noreturn]] void fail_with(const char* action, int error) const;

  std::filesystem::path target_;
  std::string temporary_;
  int fd_ = -1;
};

}  // namespace moetail::base
