// SPDX-License-Identifier: Apache-2.0
// Segments of shared memory: their names, what is refused, what a killed process leaves behind.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <set>
#include <string>

#include "tests/expect_error.hpp"
#include "tests/record.hpp"
#include "transport/process_id.hpp"
#include "transport/shared_memory.hpp"

namespace moetail::testing {
namespace {

using transport::SharedSegment;

constexpr std::size_t kBytes = 8192;

std::string shm_path(const std::string& name) {
  return "/dev/shm/" + name;
}

bool has_name(const std::string& name) {
  struct stat info {};
  return lstat(shm_path(name).c_str(), &info) == 0;
}

/// A file in shared memory that this test made by hand, removed with the object.
class HandMade {
 public:
  HandMade(std::string name, std::size_t bytes, mode_t mode) : name_(std::move(name)) {
    const int file = open(shm_path(name_).c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    EXPECT_GE(file, 0) << std::strerror(errno);
    EXPECT_EQ(ftruncate(file, static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(fchmod(file, mode), 0);
    close(file);
  }
  ~HandMade() { unlink(shm_path(name_).c_str()); }
  HandMade(const HandMade&) = delete;
  HandMade& operator=(const HandMade&) = delete;
  const std::string& name() const { return name_; }

 private:
  const std::string name_;
};

TEST(SharedMemory, IsSharedZeroedAndForOneUserOnly) {
  const SharedSegment made = SharedSegment::create(kBytes);
  struct stat info {};
  ASSERT_EQ(stat(shm_path(made.name()).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  EXPECT_EQ(info.st_uid, geteuid());
  EXPECT_EQ(static_cast<std::size_t>(info.st_size), kBytes);
  // Allocated really: a write to it later cannot run out of memory.
  EXPECT_GE(static_cast<std::size_t>(info.st_blocks) * 512, kBytes);
  const SharedSegment opened = SharedSegment::open(made.name(), kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) ASSERT_EQ(static_cast<const char*>(opened.data())[i], 0);
  static_cast<char*>(made.data())[kBytes - 1] = 7;
  EXPECT_EQ(static_cast<const char*>(opened.data())[kBytes - 1], 7);
}

TEST(SharedMemory, AUmaskChangesNothing) {
  const mode_t before = umask(0777);
  const SharedSegment made = SharedSegment::create(kBytes);
  umask(before);
  static_cast<char*>(SharedSegment::open(made.name(), kBytes).data())[0] = 1;
  EXPECT_EQ(static_cast<const char*>(made.data())[0], 1);
}

TEST(SharedMemory, OnlyTheRangesAskedForAreAllocated) {
  const SharedSegment::Range ranges[] = {{4096, 8192}};
  const SharedSegment made = SharedSegment::create(std::size_t{1} << 24, ranges);
  struct stat info {};
  ASSERT_EQ(stat(shm_path(made.name()).c_str(), &info), 0);
  EXPECT_GE(info.st_blocks * 512, 4096);
  EXPECT_LT(info.st_blocks * 512, 1 << 23);
}

TEST(SharedMemory, TheNameGoesWithTheMakerOrBefore) {
  std::string name;
  {
    const SharedSegment made = SharedSegment::create(kBytes);
    name = made.name();
    EXPECT_TRUE(has_name(name));
    const SharedSegment opened = SharedSegment::open(name, kBytes);
  }
  EXPECT_FALSE(has_name(name));
  SharedSegment early = SharedSegment::create(kBytes);
  SharedSegment mapped = SharedSegment::open(early.name(), kBytes);
  early.remove_name();
  mapped.remove_name();  // another was faster
  EXPECT_FALSE(has_name(early.name()));
  static_cast<char*>(early.data())[5] = 9;
  EXPECT_EQ(static_cast<const char*>(mapped.data())[5], 9);
}

TEST(SharedMemory, NamesAreUnguessable) {
  std::set<std::string> tails;
  constexpr int kNames = 1000;
  int ones[128] = {};
  for (int i = 0; i < kNames; ++i) {
    const std::string name = transport::make_segment_name();
    ASSERT_TRUE(transport::is_segment_name(name)) << name;
    const std::string tail = name.substr(name.rfind('-') + 1);
    ASSERT_EQ(tail.size(), 32u);
    tails.insert(tail);
    for (int bit = 0; bit < 128; ++bit)
      ones[bit] += std::stoi(tail.substr(static_cast<std::size_t>(bit) / 4, 1), nullptr, 16) >> (bit % 4) & 1;
  }
  EXPECT_EQ(tails.size(), static_cast<std::size_t>(kNames));
  // Each of the 128 bits varies: 1000 throws of a coin lie within 500 +- 150 but for one case in 10^21.
  for (const int count : ones) EXPECT_NEAR(count, kNames / 2, 150);
}

TEST(SharedMemory, WhatIsNoNameIsRefused) {
  for (const char* name :
       {"", "x", "../etc/passwd", "moetail-1-2-3-0123456789abcdef", "moetail-1-2-3-",
        "moetail-1-2-x-0123456789abcdef0123456789abcdef", "moetail-1-2-0123456789abcdef0123456789abcdef",
        "moetail-1-2-3-0123456789abcdef0123456789abcde/", "moetail-1-2-3-0123456789ABCDEF0123456789ABCDEF",
        "/moetail-1-2-3-0123456789abcdef0123456789abcdef",
        "moetail-1--2-3-0123456789abcdef0123456789abcdef"}) {
    SCOPED_TRACE(name);
    EXPECT_FALSE(transport::is_segment_name(name));
    expect_error(Code::invalid_argument, {"segment name"}, [&] { SharedSegment::open(name, kBytes); });
  }
  EXPECT_TRUE(transport::is_segment_name("moetail-1-2-3-0123456789abcdef0123456789abcdef"));
}

// The control of the refusals below: a file made by hand with nothing wrong is accepted.
TEST(SharedMemoryRefusal, ControlAFileWithNothingWrongIsAccepted) {
  const HandMade good(transport::make_segment_name(), kBytes, 0600);
  EXPECT_EQ(SharedSegment::open(good.name(), kBytes).bytes(), kBytes);
}

TEST(SharedMemoryRefusal, OfAnotherMode) {
  for (const mode_t mode : {0666, 0660, 0640, 0604, 0700, 0400, 04600, 01600}) {
    const HandMade bad(transport::make_segment_name(), kBytes, mode);
    const auto refused = [&] { SharedSegment::open(bad.name(), kBytes); };
    if (mode == 0400 && geteuid() != 0)
      expect_error(Code::fault, {"cannot be opened"}, refused);
    else
      expect_error(Code::fault, {fmt::format("mode = {:04o}", mode), "0600"}, refused);
  }
  record_fault("segment of another mode", kHost, 8, "refused, mode named");
}

TEST(SharedMemoryRefusal, OfAnotherSize) {
  for (const std::size_t bytes : {kBytes - 1, kBytes + 4096, std::size_t{0}}) {
    const HandMade bad(transport::make_segment_name(), bytes, 0600);
    expect_error(Code::fault, {fmt::format("size = {}", bytes), "8192 bytes"},
                 [&] { SharedSegment::open(bad.name(), kBytes); });
  }
  record_fault("segment of another size", kHost, 3, "refused, size named");
}

TEST(SharedMemoryRefusal, OfAnotherOwner) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  const HandMade bad(transport::make_segment_name(), kBytes, 0600);
  ASSERT_EQ(chown(shm_path(bad.name()).c_str(), 65534, 65534), 0);
  expect_error(Code::fault, {"owner = 65534"}, [&] { SharedSegment::open(bad.name(), kBytes); });
  record_fault("segment of another owner", kHost, 1, "refused, owner named");
}

TEST(SharedMemoryRefusal, OfALinkAPipeAndASecondName) {
  const HandMade good(transport::make_segment_name(), kBytes, 0600);
  const std::string link = transport::make_segment_name();
  ASSERT_EQ(symlink(shm_path(good.name()).c_str(), shm_path(link).c_str()), 0);
  expect_error(Code::fault, {"cannot be opened"}, [&] { SharedSegment::open(link, kBytes); });
  unlink(shm_path(link).c_str());
  ASSERT_EQ(mkfifo(shm_path(link).c_str(), 0600), 0);
  expect_error(Code::fault, {"kind of file", "a regular file"}, [&] { SharedSegment::open(link, kBytes); });
  unlink(shm_path(link).c_str());
  ASSERT_EQ(::link(shm_path(good.name()).c_str(), shm_path(link).c_str()), 0);
  expect_error(Code::fault, {"names = 2"}, [&] { SharedSegment::open(link, kBytes); });
  unlink(shm_path(link).c_str());
  expect_error(Code::fault, {"cannot be opened"}, [&] { SharedSegment::open(link, kBytes); });
  record_fault("a symbolic link, a pipe, a second hard link, nothing in the segment's place", kHost, 4,
               "refused");
}

TEST(SharedMemoryRoom, MoreThanThereIsIsAnErrorAndNoDeathLater) {
  struct statvfs room {};
  ASSERT_EQ(statvfs("/dev/shm", &room), 0);
  if (room.f_blocks == 0) GTEST_SKIP() << "shared memory has no limit here";
  const std::size_t too_much =
      static_cast<std::size_t>(room.f_blocks) * room.f_frsize + (std::size_t{1} << 20);
  expect_error(Code::resource, {"no room for bytes 0 to", "No space left"},
               [&] { SharedSegment::create(too_much); });
  record_fault("shared memory full", kHost, 1, "Code::resource");
}

TEST(SharedMemoryRoom, ALimitOfFileSizeIsAnErrorAndNoSignal) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit tight{4096, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  expect_error(Code::resource, {"8192 bytes", "4096"}, [&] { SharedSegment::create(kBytes); });
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  SharedSegment::create(kBytes);
}

/// A name as process `pid`, started at `start`, would have made it.
std::string name_of(const transport::ProcessId& maker) {
  return fmt::format("moetail-{}-{}-{}-{:032x}", maker.pid_namespace, maker.pid, maker.start_ticks, getpid());
}

TEST(SharedMemorySweep, TakesWhatTheDeadLeftAndNothingElse) {
  const transport::ProcessId self = transport::this_process();
  transport::ProcessId dead = self;
  dead.start_ticks += 1;  // this number was given to another process since
  transport::ProcessId elsewhere = dead;
  elsewhere.pid_namespace += 1;
  transport::ProcessId unknown = dead;
  unknown.start_ticks = 0;
  EXPECT_FALSE(transport::is_gone(self));
  EXPECT_TRUE(transport::is_gone(dead));
  EXPECT_FALSE(transport::is_gone(elsewhere));
  EXPECT_FALSE(transport::is_gone(unknown));
  const SharedSegment living = SharedSegment::create(kBytes);
  const HandMade left(name_of(dead), kBytes, 0600);
  const HandMade other_namespace(name_of(elsewhere), kBytes, 0600);
  const HandMade no_start(name_of(unknown), kBytes, 0600);
  const HandMade not_ours("x" + name_of(dead), kBytes, 0600);
  transport::sweep_segments();  // another test may have been faster
  EXPECT_FALSE(has_name(left.name()));
  EXPECT_TRUE(has_name(living.name()));
  EXPECT_TRUE(has_name(other_namespace.name()));
  EXPECT_TRUE(has_name(no_start.name()));
  EXPECT_TRUE(has_name(not_ours.name()));
  record_fault("names that dead processes left", kHost, 1,
               "swept; those of living processes, of other namespaces and of other kinds stay");
}

TEST(SharedMemorySweep, LeavesOthersFilesAndLinksAlone) {
  transport::ProcessId dead = transport::this_process();
  dead.start_ticks += 2;
  const std::string link = name_of(dead);
  ASSERT_EQ(symlink("/etc/passwd", shm_path(link).c_str()), 0);
  transport::sweep_segments();
  EXPECT_TRUE(has_name(link));
  unlink(shm_path(link).c_str());
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  const HandMade theirs(link, kBytes, 0600);
  ASSERT_EQ(chown(shm_path(link).c_str(), 65534, 65534), 0);
  transport::sweep_segments();
  EXPECT_TRUE(has_name(link));
}

TEST(ProcessIdentity, AZombieIsGone) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    char wait_here = 0;
    _exit(read(ends[0], &wait_here, 1) == 1 ? 0 : 1);
  }
  std::string text;
  {
    const std::string path = fmt::format("/proc/{}/stat", child);
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    char buffer[1024] = {};
    ASSERT_GT(read(file, buffer, sizeof buffer - 1), 0);
    close(file);
    text = buffer;
  }
  // Field 22, counted from the bracket that ends the name.
  std::string rest = text.substr(text.rfind(')') + 2);
  for (int i = 0; i < 19; ++i) rest = rest.substr(rest.find(' ') + 1);
  transport::ProcessId process = transport::this_process();
  process.pid = child;
  process.start_ticks = std::stoull(rest);
  EXPECT_FALSE(transport::is_gone(process));
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(transport::is_gone(process)) << "nobody has asked for its status yet";
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(transport::is_gone(process));
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace moetail::testing
