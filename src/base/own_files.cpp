// SPDX-License-Identifier: Apache-2.0
#include "base/own_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/descriptor.hpp"
#include "base/error.hpp"

namespace moetail::base {
namespace {

constexpr int kMostLinks = 40;  // as many as Linux follows
constexpr mode_t kWrittenByOthers = S_IWGRP | S_IWOTH;

[[noreturn]] void fail_with(const std::filesystem::path& path, const char* action, int error) {
  fail(Code::file, "{}: {} ({})", path.string(), action, std::generic_category().message(error));
}

struct stat status_of(const std::filesystem::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) fail_with(path, "cannot be looked at", errno);
  return status;
}

void check_owner(const std::filesystem::path& path, const struct stat& status, bool may_be_roots) {
  const uid_t user = ::geteuid();
  if (status.st_uid == user || (may_be_roots && status.st_uid == 0)) return;
  fail(Code::file, "{}: belongs to user {}: accepted is user {}{}", path.string(), status.st_uid, user,
       may_be_roots ? " or root" : "");
}

void check_writers(const std::filesystem::path& path, const struct stat& status) {
  if ((status.st_mode & kWrittenByOthers) != 0)
    fail(Code::file, "{}: mode = {:03o}: accepted is none that lets other users write (chmod go-w)",
         path.string(), status.st_mode & 0777u);
}

/// One part of a path, above the folder that is asked for. Returns where a link leads, or nothing for a folder.
std::optional<std::filesystem::path> check_part(const std::filesystem::path& part) {
  const struct stat status = status_of(part);
  check_owner(part, status, true);
  if (S_ISLNK(status.st_mode)) return std::filesystem::read_symlink(part);
  if (!S_ISDIR(status.st_mode)) fail(Code::file, "{}: accepted is a folder", part.string());
  // In a sticky folder only the owner of a name can rename or remove it, and the owner is checked.
  if ((status.st_mode & S_ISVTX) == 0) check_writers(part, status);
  return std::nullopt;
}

/// Checks `folder` and all above it, itself included, with its links followed.
void check_way(const std::filesystem::path& folder, int links) {
  std::filesystem::path done = "/";
  check_part(done);
  for (auto part = folder.begin(); part != folder.end(); ++part) {
    if (part->empty() || *part == "/" || *part == ".") continue;
    if (*part == "..") {
      done = done.parent_path();
      continue;
    }
    const auto target = check_part(done / *part);
    if (!target) {
      done /= *part;
      continue;
    }
    if (links == kMostLinks) fail_with(folder, "cannot be looked at", ELOOP);
    std::filesystem::path rest = done / *target;  // an absolute target replaces `done`
    for (++part; part != folder.end(); ++part) rest /= *part;
    return check_way(rest, links + 1);
  }
}

/// Without a slash at the end, after which a link's own status could not be seen.
std::filesystem::path without_slash(const std::filesystem::path& folder) {
  return folder.has_filename() ? folder : folder.parent_path();
}

}  // namespace

void check_own_folder(const std::filesystem::path& folder) {
  const std::filesystem::path place = without_slash(std::filesystem::absolute(folder));
  check_way(place.parent_path(), 0);
  const struct stat status = status_of(place);
  if (!S_ISDIR(status.st_mode))
    fail(Code::file, "{}: accepted is a folder{}", place.string(),
         S_ISLNK(status.st_mode) ? ", not a link to one" : "");
  check_owner(place, status, false);
  check_writers(place, status);
}

void make_own_folder(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> missing;
  std::filesystem::path there = without_slash(std::filesystem::absolute(folder));
  struct stat status {};
  while (::lstat(there.c_str(), &status) != 0 && errno == ENOENT) {
    missing.push_back(there);
    there = there.parent_path();
  }
  if (!missing.empty()) check_way(there, 0);  // before anything is made at the end of somebody's link
  for (auto part = missing.rbegin(); part != missing.rend(); ++part)
    if (::mkdir(part->c_str(), kOwnFolderMode) != 0 && errno != EEXIST)
      fail_with(*part, "cannot be made", errno);
  check_own_folder(folder);
}

std::optional<std::vector<std::byte>> read_own_file(const std::filesystem::path& file, std::uint64_t most) {
  const Descriptor opened(::open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (opened.get() < 0) {
    if (errno == ENOENT) return std::nullopt;
    fail_with(file, "cannot be read", errno);
  }
  struct stat status {};
  if (::fstat(opened.get(), &status) != 0) fail_with(file, "cannot be looked at", errno);
  if (!S_ISREG(status.st_mode)) fail(Code::file, "{}: accepted is a regular file", file.string());
  check_owner(file, status, false);
  check_writers(file, status);
  if (static_cast<std::uint64_t>(status.st_size) > most)
    fail(Code::file, "{}: {} bytes: accepted is at most {}", file.string(), status.st_size, most);
  std::vector<std::byte> bytes(static_cast<std::size_t>(status.st_size));
  std::size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t some = ::read(opened.get(), bytes.data() + got, bytes.size() - got);
    if (some < 0 && errno == EINTR) continue;
    if (some < 0) fail_with(file, "cannot be read", errno);
    if (some == 0) fail(Code::file, "{}: became shorter while it was read", file.string());
    got += static_cast<std::size_t>(some);
  }
  return bytes;
}

}  // namespace moetail::base
