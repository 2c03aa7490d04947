// SPDX-License-Identifier: Apache-2.0
#include "transport/shared_memory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/descriptor.hpp"
#include "base/error.hpp"
#include "transport/process_id.hpp"

namespace moetail::transport {
namespace {

constexpr std::string_view kPrefix = "moetail-";
constexpr std::size_t kRandomDigits = 32;
// Where Linux keeps what shm_open names.
constexpr const char* kFolder = "/dev/shm";
constexpr mode_t kMode = S_IRUSR | S_IWUSR;

std::string random_digits() {
  std::array<unsigned char, kRandomDigits / 2> bytes{};
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = getrandom(bytes.data() + done, bytes.size() - done, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) base::fail(Code::resource, "a segment's name: no random numbers: {}", std::strerror(errno));
    done += static_cast<std::size_t>(got);
  }
  std::string digits;
  for (const unsigned char byte : bytes) digits += fmt::format("{:02x}", byte);
  return digits;
}

bool are_digits(std::string_view text, std::string_view accepted) {
  return !text.empty() && text.find_first_not_of(accepted) == std::string_view::npos;
}

template <typename Number>
bool read_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() && are_digits(text, "0123456789");
}

std::optional<ProcessId> maker_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t dash = name.find('-');
    parts.push_back(name.substr(0, dash));
    if (dash == std::string_view::npos) break;
    name.remove_prefix(dash + 1);
  }
  ProcessId maker;
  if (parts.size() != 4 || parts[3].size() != kRandomDigits || !are_digits(parts[3], "0123456789abcdef") ||
      !read_number(parts[0], maker.pid_namespace) || !read_number(parts[1], maker.pid) ||
      !read_number(parts[2], maker.start_ticks))
    return std::nullopt;
  return maker;
}

std::string path_of(const std::string& name) {
  return "/" + name;
}

void check_is_ours(int file, const std::string& name, std::size_t bytes) {
  struct stat info {};
  if (fstat(file, &info) != 0)
    base::fail(Code::fault, "shared memory {}: fstat: {}", name, std::strerror(errno));
  const auto refuse = [&](const char* what, const std::string& value, const std::string& accepted) {
    base::fail(Code::fault, "shared memory {}: {} = {}: accepted is {}", name, what, value, accepted);
  };
  if (!S_ISREG(info.st_mode))
    refuse("kind of file", fmt::format("{:o}", info.st_mode & S_IFMT), "a regular file");
  if (info.st_uid != geteuid())
    refuse("owner", fmt::format("{}", info.st_uid), fmt::format("{}, this process's user", geteuid()));
  if ((info.st_mode & ~static_cast<mode_t>(S_IFMT)) != kMode)
    refuse("mode", fmt::format("{:04o}", info.st_mode & ~static_cast<mode_t>(S_IFMT)), "0600");
  if (info.st_nlink > 1) refuse("names", fmt::format("{}", info.st_nlink), "one");
  if (static_cast<std::size_t>(info.st_size) != bytes)
    refuse("size", fmt::format("{}", info.st_size), fmt::format("{} bytes", bytes));
}

void set_size(int file, std::size_t bytes) {
  // Beyond this limit ftruncate would raise SIGXFSZ, whose default is death.
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur)
    base::fail(Code::resource, "shared memory of {} bytes: the limit of a file's size is {}", bytes,
               static_cast<unsigned long long>(limit.rlim_cur));
  if (ftruncate(file, static_cast<off_t>(bytes)) != 0)
    base::fail(Code::resource, "shared memory of {} bytes: {}", bytes, std::strerror(errno));
}

void allocate(int file, const SharedSegment::Range& range, std::size_t bytes) {
  if (range.end <= range.begin) return;
  const auto no_room = [&](int error) {
    base::fail(Code::resource, "shared memory of {} bytes: no room for bytes {} to {} in {}: {}", bytes,
               range.begin, range.end, kFolder, std::strerror(error));
  };
  // What cannot fit at all is refused before any of it has taken the memory from others.
  struct statvfs room {};
  if (fstatvfs(file, &room) == 0 && room.f_blocks > 0 &&
      (range.end - range.begin) / room.f_frsize > room.f_bavail)
    no_room(ENOSPC);
  // An interrupted call takes back what it had allocated, so a process with a timer gets nowhere with one large piece.
  constexpr std::size_t kPiece = 1 << 20;
  for (std::size_t begin = range.begin; begin < range.end; begin += kPiece) {
    const std::size_t piece = std::min(kPiece, range.end - begin);
    int error = 0;
    do {
      error = posix_fallocate(file, static_cast<off_t>(begin), static_cast<off_t>(piece));
    } while (error == EINTR);
    if (error != 0) no_room(error);
  }
}

}  // namespace

std::string make_segment_name() {
  const ProcessId maker = this_process();
  return fmt::format("{}{}-{}-{}-{}", kPrefix, maker.pid_namespace, maker.pid, maker.start_ticks,
                     random_digits());
}

bool is_segment_name(std::string_view name) {
  return maker_of(name).has_value();
}

int sweep_segments() noexcept {
  DIR* const folder = opendir(kFolder);
  if (folder == nullptr) return 0;
  int removed = 0;
  try {
    while (const dirent* entry = readdir(folder)) {
      const auto maker = maker_of(entry->d_name);
      struct stat info {};
      if (!maker || fstatat(dirfd(folder), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
          !S_ISREG(info.st_mode) || info.st_uid != geteuid() || !is_gone(*maker))
        continue;
      if (unlinkat(dirfd(folder), entry->d_name, 0) == 0) ++removed;
    }
  } catch (...) {  // memory for a string: the next start sweeps again
  }
  closedir(folder);
  return removed;
}

SharedSegment SharedSegment::create(std::size_t bytes, std::span<const Range> used) {
  SharedSegment segment(make_segment_name(), true);
  const base::Descriptor file(
      shm_open(segment.path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kMode));
  if (file.get() < 0) {
    segment.owns_name_ = false;
    base::fail(Code::resource, "shared memory of {} bytes: shm_open: {}", bytes, std::strerror(errno));
  }
  // A umask may have taken bits away that the others look for.
  if (fchmod(file.get(), kMode) != 0)
    base::fail(Code::resource, "shared memory of {} bytes: fchmod: {}", bytes, std::strerror(errno));
  set_size(file.get(), bytes);
  for (const Range& range : used) allocate(file.get(), range, bytes);
  segment.map(file.get(), bytes);
  return segment;
}

SharedSegment SharedSegment::create(std::size_t bytes) {
  const Range all{0, bytes};
  return create(bytes, {&all, 1});
}

SharedSegment SharedSegment::open(const std::string& name, std::size_t bytes) {
  if (!is_segment_name(name))
    base::bad_argument("segment name", name, "moetail-N-N-N-, then 32 hexadecimal digits");
  const base::Descriptor file(shm_open(path_of(name).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0));
  if (file.get() < 0)
    base::fail(Code::fault, "shared memory {}: cannot be opened: {}", name, std::strerror(errno));
  check_is_ours(file.get(), name, bytes);
  SharedSegment segment(name, false);
  segment.map(file.get(), bytes);
  return segment;
}

void SharedSegment::map(int file, std::size_t bytes) {
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (data == MAP_FAILED)
    base::fail(Code::resource, "shared memory of {} bytes: mmap: {}", bytes, std::strerror(errno));
  data_ = data;
  bytes_ = bytes;
  // A wish, as for the mailboxes of one process; most systems give shared memory none.
  madvise(data, bytes, MADV_HUGEPAGE);
}

SharedSegment::SharedSegment(std::string name, bool owns_name)
    : name_(std::move(name)), path_(path_of(name_)), maker_(getpid()), owns_name_(owns_name) {}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : name_(std::move(other.name_)),
      path_(std::move(other.path_)),
      maker_(other.maker_),
      owns_name_(std::exchange(other.owns_name_, false)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(other.bytes_) {}

SharedSegment::~SharedSegment() {
  if (data_ != nullptr) munmap(data_, bytes_);
  if (owns_name_) remove_name();
}

void SharedSegment::remove_name() noexcept {
  // A forked copy of the object goes away without taking the name from those who still need it.
  const bool is_maker_or_guest = !std::exchange(owns_name_, false) || maker_ == getpid();
  if (is_maker_or_guest) shm_unlink(path_.c_str());
}

}  // namespace moetail::transport
