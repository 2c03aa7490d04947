// SPDX-License-Identifier: Apache-2.0
// Temporary name, positioned writes, fsync, rename.
#include "base/atomic_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <system_error>
#include <utility>

#include "base/error.hpp"

namespace moetail::base {
namespace {

bool means_full(int error) {
  return error == ENOSPC || error == EDQUOT || error == ENOMEM;
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path target, int mode) : target_(std::move(target)) {
  struct stat status {};
  if (::stat(target_.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    fail(Code::file, "{}: exists and is no regular file: accepted is a new name or a regular file to replace",
         target_.string());
  }
  static std::atomic<unsigned> counter{0};
  constexpr int kMaxTries = 100;
  for (int tries = 0; fd_ < 0; ++tries) {
    temporary_ = fmt::format("{}.tmp-{}-{}", target_.string(), ::getpid(), counter.fetch_add(1));
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, static_cast<mode_t>(mode));
    if (fd_ < 0 && (errno != EEXIST || tries == kMaxTries)) fail_with("cannot be created", errno);
  }
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::fail_with(const char* action, int error) const {
  fail(means_full(error) ? Code::resource : Code::file, "{}: {} ({})", target_.string(), action,
       std::generic_category().message(error));
}

void AtomicFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  constexpr auto kMaxOffset = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
  if (offset > kMaxOffset || bytes.size() > kMaxOffset - offset) fail_with("cannot be written", EFBIG);
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0) {
      if (errno == EINTR) continue;
      fail_with("cannot be written", errno);
    }
    if (written == 0) fail_with("cannot be written", EIO);
    offset += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  // Some file systems find out only here, or at close, that the bytes do not fit.
  if (::fsync(fd_) != 0) fail_with("cannot be brought to the disk", errno);
  if (::close(std::exchange(fd_, -1)) != 0) fail_with("cannot be closed", errno);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail_with("cannot be given its name", errno);
  temporary_.clear();
}

}  // namespace moetail::base
