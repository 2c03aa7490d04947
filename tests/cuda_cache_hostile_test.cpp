// SPDX-License-Identifier: Apache-2.0
// The kernel cache among other users and other processes: no link is followed and nothing believed that another user could have written; what
// is damaged is made again; two processes share a folder. In every case the kernel asked for comes, from the compiler if need be.
#include <gmock/gmock.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "base/own_files.hpp"
#include "engine/cuda/info.hpp"
#include "tests/cuda_cache_testing.hpp"
#include "tests/record.hpp"

namespace moetail::testing {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kNobody = 65534;
constexpr const char* kNotBelieved =
    "not read, not written through; the kernel comes from the compiler, the reason is kept";

/// What `work` returns in a process of its own, which runs it as `user` where that is not this one.
int exit_code_of_process(const std::function<int()>& work, uid_t user = ::geteuid()) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (user != ::geteuid() && (::setgid(user) != 0 || ::setuid(user) != 0)) ::_exit(99);
    ::_exit(work());
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

class CudaCacheHostile : public CudaCacheTest {
 protected:
  KernelCache cache_in(const fs::path& place) { return KernelCache(compiler.functions(), place); }

  /// Asks for the kernel in a folder that must not be believed; `kept` is an entry that lies there already.
  void expect_not_believed(const fs::path& place, const std::string& reason) {
    const int before = compiler.compiled;
    KernelCache a_cache = cache_in(place);
    const auto found = a_cache.get(spec_of());
    EXPECT_EQ(found.origin, Origin::compiler);
    EXPECT_EQ(code_of(found), "BATCH=1");
    EXPECT_EQ(compiler.compiled, before + 1);
    EXPECT_THAT(a_cache.trouble(), HasSubstr(reason));
  }
  /// The control: the same folder is used once nothing is wrong with it.
  void expect_believed(const fs::path& place) {
    cache_in(place).get(spec_of());
    EXPECT_EQ(cache_in(place).get(spec_of()).origin, Origin::disk);
  }
  fs::path made(const char* name) const {
    fs::path place = folder.path() / name;
    fs::create_directory(place);
    return place;
  }
};

TEST_F(CudaCacheHostile, AFolderThatIsALink) {
  const fs::path elsewhere = made("elsewhere");
  fs::create_directory_symlink(elsewhere, folder.path() / "link");
  expect_not_believed(folder.path() / "link", "not a link");
  expect_not_believed(folder.path() / "link" / "", "not a link");
  EXPECT_TRUE(fs::is_empty(elsewhere));
  // With an entry at the link's end that would do.
  expect_believed(elsewhere);
  expect_not_believed(folder.path() / "link", "not a link");
  // On the way to the folder this user's own link is no harm.
  expect_believed(folder.path() / "link" / "kernels");
  record_fault("cache: the folder is a link", kHost, 3, kNotBelieved);
}

TEST_F(CudaCacheHostile, AFolderThatOthersMayWriteTo) {
  const fs::path open = made("open");
  for (const auto extra : {fs::perms::group_write, fs::perms::others_write}) {
    expect_believed(open);
    fs::permissions(open, extra, fs::perm_options::add);
    expect_not_believed(open, "chmod go-w");
    fs::permissions(open, extra, fs::perm_options::remove);
  }
  expect_believed(open);
  // Above the folder it is the same, but where a name is safe from all but its owner.
  const fs::path inner = open / "kernels";
  fs::permissions(open, fs::perms::others_write, fs::perm_options::add);
  expect_not_believed(inner, "chmod go-w");
  EXPECT_FALSE(fs::exists(inner)) << "nothing is made in a place like that";
  fs::permissions(open, fs::perms::sticky_bit, fs::perm_options::add);
  expect_believed(inner);
  record_fault("cache: other users may write to the folder, or above it", kHost, 3, kNotBelieved);
}

TEST_F(CudaCacheHostile, AnEntryThatIsALinkAPipeOrWrittenByOthers) {
  cache().get(spec_of());
  const fs::path file = cache().file_of(spec_of()), kept = folder.path() / "kept";
  const std::string whole = read(file);
  fs::rename(file, kept);
  fs::create_symlink(kept, file);
  expect_not_believed(folder.path(), "cannot be read");
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(file))) << "the link is replaced";
  EXPECT_EQ(read(kept), whole) << "and its end is as it was";
  expect_believed(folder.path());

  fs::permissions(file, fs::perms::others_write, fs::perm_options::add);
  expect_not_believed(folder.path(), "chmod go-w");
  EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  expect_believed(folder.path());

  fs::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  expect_not_believed(folder.path(), "regular file");  // and does not wait for a writer
  record_fault("cache: an entry is a link, a pipe, or written by others", kHost, 3, kNotBelieved);
}

TEST_F(CudaCacheHostile, EntriesAndFoldersOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make another user's files";
  const fs::path theirs = made("theirs"), ours = made("ours");
  cache_in(theirs).get(spec_of());
  ASSERT_EQ(::chown(theirs.c_str(), kNobody, kNobody), 0);
  expect_not_believed(theirs, "belongs to user 65534");
  expect_not_believed(theirs / "deeper", "belongs to user 65534");
  EXPECT_FALSE(fs::exists(theirs / "deeper"));
  cache_in(ours).get(spec_of());
  ASSERT_EQ(::chown(cache_in(ours).file_of(spec_of()).c_str(), kNobody, kNobody), 0);
  expect_not_believed(ours, "belongs to user 65534");
  // Another user's link on the way, to what is this user's.
  fs::create_directory_symlink(ours, folder.path() / "lure");
  ASSERT_EQ(::lchown((folder.path() / "lure").c_str(), kNobody, kNobody), 0);
  expect_not_believed(folder.path() / "lure" / "kernels", "belongs to user 65534");
  EXPECT_FALSE(fs::exists(ours / "kernels"));
  // And root's folder is not that user's, who cannot write to it either.
  fs::permissions(folder.path(), fs::perms::others_read | fs::perms::others_exec, fs::perm_options::add);
  const int code = exit_code_of_process(
      [&] {
        KernelCache a_cache = cache_in(ours);
        return a_cache.get(spec_of()).origin == Origin::compiler && !a_cache.trouble().empty() ? 0 : 1;
      },
      kNobody);
  EXPECT_EQ(code, 0);
  record_fault("cache: files, folders and links of another user", kHost, 5, kNotBelieved);
}

TEST_F(CudaCacheHostile, AFolderWithoutPermission) {
  const fs::path closed = made("closed");
  const bool is_root = ::geteuid() == 0;  // whom permissions do not stop
  const uid_t user = is_root ? kNobody : ::geteuid();
  if (is_root) {
    ASSERT_EQ(::chown(closed.c_str(), kNobody, kNobody), 0);
  }
  fs::permissions(closed, fs::perms::owner_read | fs::perms::owner_exec);
  fs::permissions(folder.path(), fs::perms::others_read | fs::perms::others_exec, fs::perm_options::add);
  const int code = exit_code_of_process(
      [&] {
        KernelCache a_cache = cache_in(closed);
        if (a_cache.get(spec_of()).origin != Origin::compiler) return 1;
        if (a_cache.get(spec_of()).origin != Origin::memory) return 2;
        return a_cache.trouble().find("cannot be created") != std::string::npos ? 0 : 3;
      },
      user);
  EXPECT_EQ(code, 0);
  record_fault("cache: the folder is not writable", kHost, 1, "works in memory alone; the reason is kept");
}

TEST_F(CudaCacheHostile, TwoProcessesAtOneFolder) {
  constexpr int kRounds = 20, kKernels = 4;
  for (int round = 0; round < kRounds; ++round) {
    const auto ask = [&] {
      KernelCache a_cache = cache();
      for (int batch = 0; batch < kKernels; ++batch) {
        const std::string define = "BATCH=" + std::to_string(batch);
        if (code_of(a_cache.get(spec_of(define))) != define) return 1;
      }
      return a_cache.trouble().empty() ? 0 : 2;
    };
    std::vector<pid_t> children;
    for (int process = 0; process < 2; ++process) {
      children.push_back(::fork());
      if (children.back() == 0) ::_exit(ask());
    }
    for (const pid_t child : children) {
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    }
    EXPECT_EQ(num_files(), static_cast<std::size_t>(kKernels)) << "whole entries and nothing beside them";
    for (int batch = 0; batch < kKernels; ++batch)
      EXPECT_EQ(cache().get(spec_of("BATCH=" + std::to_string(batch))).origin, Origin::disk);
    fs::remove_all(folder.path());
    fs::create_directory(folder.path());
  }
  record_fault("cache: two processes at one folder", kHost, kRounds,
               "right kernels in both; whole entries; no left-over file");
}

RC_GTEST_FIXTURE_PROP(CudaCacheHostile, DamageOfAnyKindIsMadeAgain, ()) {
  static std::uint64_t tries = 0;
  const fs::path file = cache().file_of(spec_of());
  cache().get(spec_of());
  const std::string whole = read(file);
  std::string damaged = whole;
  const int edits = *rc::gen::inRange(1, 9);
  for (int edit = 0; edit < edits; ++edit) {
    const auto at = static_cast<std::size_t>(*rc::gen::inRange(0, static_cast<int>(damaged.size()) + 1));
    switch (*rc::gen::inRange(0, 3)) {
      case 0: damaged.resize(at); break;
      case 1: damaged.insert(at, *rc::gen::string<std::string>()); break;
      default:
        if (at < damaged.size()) damaged[at] = *rc::gen::arbitrary<char>();
    }
  }
  write(file, damaged);
  const auto found = cache().get(spec_of());
  RC_ASSERT(code_of(found) == "BATCH=1");
  RC_ASSERT((found.origin == Origin::disk) == (damaged == whole));
  RC_ASSERT(read(file) == whole);
  record_fault("cache: damaged entries (RapidCheck)", kHost, ++tries, "made again, and replaced");
}

TEST_F(CudaCacheHostile, InfoSaysWhyAFolderIsNotUsed) {
  const fs::path open = made("open");
  const ScopedEnv given("MOETAIL_CACHE_DIR", open.string());
  EXPECT_EQ(cuda::cuda_info().kernel_cache, open.string());
  fs::permissions(open, fs::perms::others_write, fs::perm_options::add);
  EXPECT_THAT(cuda::cuda_info().kernel_cache, HasSubstr("in memory only: " + open.string()));
}

}  // namespace
}  // namespace moetail::testing
