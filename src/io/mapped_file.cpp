// SPDX-License-Identifier: Apache-2.0
// open, fstat, mmap, each with its error in words.
#include "io/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <limits>
#include <system_error>

#include "base/descriptor.hpp"
#include "base/error.hpp"

namespace moetail::io {
namespace {

std::string error_text(int error) {
  return std::generic_category().message(error);
}

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "of an unknown kind";
}

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const std::string name = path.string();
  // Without O_NONBLOCK the open of a pipe that nobody writes would wait for ever.
  const base::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    base::fail(Code::file, "{}: cannot be opened ({}): accepted is a readable regular file", name,
               error_text(errno));
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) {
    base::fail(Code::file, "{}: its size cannot be read ({})", name, error_text(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    base::fail(Code::file, "{}: is {}: accepted is a regular file", name, kind_of(status.st_mode));
  }
  if (status.st_size <= 0)
    base::fail(Code::file, "{}: is empty: accepted is a file of at least 1 byte", name);
  const auto num_bytes = static_cast<std::uint64_t>(status.st_size);
  if (num_bytes > std::numeric_limits<std::size_t>::max()) {
    base::fail(Code::resource, "{}: has {} bytes, more than this machine can address", name, num_bytes);
  }
  const auto length = static_cast<std::size_t>(num_bytes);
  // The owner exists before the mapping, so that no failure in between can lose or free it twice.
  std::unique_ptr<MappedFile> mapped(new MappedFile());
  void* start = ::mmap(nullptr, length, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (start == MAP_FAILED) {
    const Code code = errno == ENOMEM ? Code::resource : Code::file;
    base::fail(code, "{}: {} bytes cannot be mapped into memory ({})", name, length, error_text(errno));
  }
  mapped->bytes_ = {static_cast<const std::byte*>(start), length};
  return mapped;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace moetail::io
