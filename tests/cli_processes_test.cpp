// SPDX-License-Identifier: Apache-2.0
// `moetail run --processes`: the same output as with ranks in one process, and what happens when a process is killed or stopped.
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/cli_testing.hpp"
#include "tests/record.hpp"

namespace moetail::cli_testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

TEST(CliProcesses, GivesTheBitsOfRanksInOneProcess) {
  for (const char* ranks : {"1", "2", "4", "8"}) {
    const std::string flags = "run " + kSmallRun + "--tp " + ranks +
                              " --batch 1,3 --mode front,front_poll,publish,twoshot --json -";
    const Outcome apart = moetail(flags + " --processes"), together = moetail(flags);
    ASSERT_EQ(apart.exit_code, 0) << apart.err;
    ASSERT_EQ(together.exit_code, 0) << together.err;
    EXPECT_EQ(apart.json().at("world"), "processes");
    EXPECT_EQ(together.json().at("world"), "virtual");
    const nlohmann::json ours = apart.json().at("results"), theirs = together.json().at("results");
    ASSERT_EQ(ours.size(), 8u);
    for (std::size_t i = 0; i < ours.size(); ++i) {
      EXPECT_EQ(ours[i].at("output_hash"), theirs.at(i).at("output_hash")) << ours[i].dump();
      EXPECT_EQ(ours[i].at("rows_checked"), theirs.at(i).at("rows_checked"));
      EXPECT_TRUE(ours[i].at("ranks_equal"));
      EXPECT_EQ(ours[i].at("verdict"), "pass");
      EXPECT_GT(ours[i].at("median_us"), 0);
    }
  }
}

TEST(CliProcesses, SaysSoAboveTheTable) {
  const Outcome outcome = moetail("run " + kSmallRun +
                                  "--tp 2 --processes --form published --mode publish,front_poll --residual");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("one process a rank"));
}

TEST(CliProcesses, IsOfTheCpuEngine) {
  const Outcome cuda = moetail("run --processes --engine cuda " + kSmallRun);
  EXPECT_EQ(cuda.exit_code, 2);
  EXPECT_THAT(cuda.err, HasSubstr("--processes: engine = cuda: accepted is --engine cpu or auto"));
  const Outcome replay = moetail("run --processes --world replay " + kSmallRun);
  EXPECT_EQ(replay.exit_code, 2);
  EXPECT_THAT(replay.err, HasSubstr("--world = replay"));
  EXPECT_EQ(moetail("bench --processes").exit_code, 2);
}

TEST(CliProcesses, ABadSettingIsEveryRanksAndBadInput) {
  const Outcome outcome =
      moetail("run --processes --tp 2 " + kSmallRun, kGivenCeilings + " MOETAIL_MULTICAST=2");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("of 2: make_boxes 1"), HasSubstr("MOETAIL_MULTICAST = 2")));
}

TEST(CliProcesses, TooLittleSharedMemoryIsAFaultWithTheRank) {
  // The limit is on the size of files: 256 blocks of 1024 bytes.
  const Outcome outcome =
      moetail("run --processes --tp 2 --hidden 7168 --latent 3584 --layers 1 --steps 3 --quiet",
              "ulimit -f 256; " + kGivenCeilings);
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("rank 0 of 2: make_boxes 1, memory"), HasSubstr("limit of a file's size")));
}

/// A run of four ranks that goes on for minutes, and ends with the object at the latest.
class LongRun {
 public:
  explicit LongRun(const std::string& deadline) {
    std::vector<std::string> words = {
        MOETAIL_CLI, "run",     "--processes", "--tp",     "4",      "--hidden", "256",    "--latent",
        "128",       "--top-k", "4",           "--layers", "2",      "--steps",  "100000", "--quiet",
        "--engine",  "cpu",     "--deadline",  deadline,   "--json", json_path()};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    setenv("MOETAIL_CEILINGS", "20,1000", 1);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    const std::string out = (scratch_ / "out").string(), err = err_path();
    posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_CREAT | O_WRONLY, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_CREAT | O_WRONLY, 0600);
    EXPECT_EQ(posix_spawn(&pid_, MOETAIL_CLI, &actions, nullptr, arguments.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    unsetenv("MOETAIL_CEILINGS");
    // Under way once steps follow each other, for each of which it sleeps at least once.
    for (int i = 0; i < 500 && children().size() < 4; ++i) std::this_thread::sleep_for(10ms);
    ranks_ = children();
    const int begun = num_sleeps();
    for (int i = 0; i < 1000 && num_sleeps() < begun + 100; ++i) std::this_thread::sleep_for(10ms);
    EXPECT_GE(num_sleeps(), begun + 100) << this->err();
  }
  ~LongRun() {
    if (!ended_) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  LongRun(const LongRun&) = delete;
  LongRun& operator=(const LongRun&) = delete;

  pid_t pid() const { return pid_; }
  /// The processes of ranks 0, 1, ...
  const std::vector<pid_t>& ranks() const { return ranks_; }
  /// Exit status, or minus the signal.
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    ended_ = true;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }
  std::string err() const { return read_file(err_path()); }
  nlohmann::json json() const { return nlohmann::json::parse(read_file(json_path())); }
  /// Whether all rank processes have ended within a second.
  bool are_ranks_gone() const {
    for (int i = 0; i < 100; ++i) {
      bool gone = true;
      for (const pid_t rank : ranks_) gone = gone && !is_running(rank);
      if (gone) return true;
      std::this_thread::sleep_for(10ms);
    }
    return false;
  }
  int names_left() const {
    int names = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      const std::string name = entry.path().filename().string();
      std::vector<pid_t> makers = ranks_;
      makers.push_back(pid_);
      for (const pid_t maker : makers)
        names += name.starts_with("moetail-") && name.find(fmt::format("-{}-", maker)) != std::string::npos
                     ? 1
                     : 0;
    }
    return names;
  }

 private:
  // A process whose parent has died may wait as a zombie for somebody to ask for its status.
  static bool is_running(pid_t pid) {
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string text;
    std::getline(file, text);
    const std::size_t bracket = text.rfind(')');
    return bracket != std::string::npos && text.size() > bracket + 2 && text[bracket + 2] != 'Z';
  }
  int num_sleeps() const {
    std::ifstream file(fmt::format("/proc/{}/status", pid_));
    const std::string title = "voluntary_ctxt_switches:";
    for (std::string line; std::getline(file, line);)
      if (line.starts_with(title)) return std::stoi(line.substr(title.size()));
    return 0;
  }
  std::string err_path() const { return (scratch_ / "err").string(); }
  std::string json_path() const { return (scratch_ / "json").string(); }
  std::vector<pid_t> children() const {
    std::ifstream file(fmt::format("/proc/{0}/task/{0}/children", pid_));
    std::vector<pid_t> pids;
    for (pid_t pid = 0; file >> pid;) pids.push_back(pid);
    return pids;
  }

  const TempDir scratch_;
  pid_t pid_ = -1;
  std::vector<pid_t> ranks_;
  bool ended_ = false;
};

TEST(CliProcesses, AKilledRankIsNamedWithItsSignal) {
  for (const int dead : {0, 2}) {
    LongRun run("0.4");
    ASSERT_EQ(run.ranks().size(), 4u) << run.err();
    const auto begin = Clock::now();
    kill(run.ranks()[static_cast<std::size_t>(dead)], SIGKILL);
    EXPECT_EQ(run.wait(), 3);
    EXPECT_LT(Clock::now() - begin, 400ms + 1s + 500ms);
    const std::string who = fmt::format("rank {} (process {}) was killed by signal 9 (Killed)", dead,
                                        run.ranks()[static_cast<std::size_t>(dead)]);
    EXPECT_THAT(run.err(), HasSubstr(who));
    EXPECT_EQ(run.json().at("verdict"), "error");
    EXPECT_THAT(run.json().at("error").at("message").get<std::string>(), HasSubstr(who));
    EXPECT_EQ(run.json().at("error").at("code"), "fault");
    EXPECT_TRUE(run.are_ranks_gone());
    EXPECT_EQ(run.names_left(), 0);
  }
  testing::record_fault("SIGKILL of a rank of moetail run --processes", testing::kProcesses, 2,
                        "exit 3, rank and signal named; no process and no segment left");
}

TEST(CliProcesses, WithoutADeadlineAKilledRankEndsTheRunToo) {
  LongRun run("0");
  ASSERT_EQ(run.ranks().size(), 4u) << run.err();
  const auto begin = Clock::now();
  kill(run.ranks()[1], SIGTERM);
  EXPECT_EQ(run.wait(), 3);
  EXPECT_LT(Clock::now() - begin, 3s);
  EXPECT_THAT(run.err(), HasSubstr("was killed by signal 15 (Terminated)"));
  EXPECT_TRUE(run.are_ranks_gone());
  testing::record_fault("SIGTERM of a rank of moetail run --processes --deadline 0", testing::kProcesses, 1,
                        "exit 3, rank and signal named; no process left");
}

TEST(CliProcesses, AStoppedRankIsNamed) {
  LongRun run("0.4");
  ASSERT_EQ(run.ranks().size(), 4u) << run.err();
  const auto begin = Clock::now();
  kill(run.ranks()[3], SIGSTOP);
  EXPECT_EQ(run.wait(), 3);
  EXPECT_LT(Clock::now() - begin, 2 * 400ms + 1s + 1s);
  EXPECT_THAT(run.err(), HasSubstr(fmt::format("rank 3 (process {}) did not answer", run.ranks()[3])));
  EXPECT_TRUE(run.are_ranks_gone());
  EXPECT_EQ(run.names_left(), 0);
  testing::record_fault("SIGSTOP of a rank of moetail run --processes", testing::kProcesses, 1,
                        "exit 3, rank named; no process and no segment left");
}

/// A process that is held at the entry of its next send, and let go by the destructor.
class HeldBeforeSend {
 public:
  explicit HeldBeforeSend(pid_t pid) : pid_(pid) {
    if (ptrace(PTRACE_SEIZE, pid_, nullptr, PTRACE_O_TRACESYSGOOD) != 0) return;
    traced_ = true;
    ptrace(PTRACE_INTERRUPT, pid_, nullptr, nullptr);
    for (int stops = 0; stops < 100'000 && !holds_; ++stops) {
      int status = 0;
      if (waitpid(pid_, &status, __WALL) != pid_ || !WIFSTOPPED(status)) return;
      __ptrace_syscall_info info{};
      const bool at_call = WSTOPSIG(status) == (SIGTRAP | 0x80) &&
                           ptrace(PTRACE_GET_SYSCALL_INFO, pid_, sizeof info, &info) > 0;
      holds_ = at_call && info.op == PTRACE_SYSCALL_INFO_ENTRY && info.entry.nr == SYS_sendto;
      if (!holds_) ptrace(PTRACE_SYSCALL, pid_, nullptr, nullptr);
    }
  }
  ~HeldBeforeSend() {
    if (traced_) ptrace(PTRACE_DETACH, pid_, nullptr, nullptr);
  }
  HeldBeforeSend(const HeldBeforeSend&) = delete;
  HeldBeforeSend& operator=(const HeldBeforeSend&) = delete;

  bool is_refused() const { return !traced_; }
  bool holds() const { return holds_; }
  /// Whether it was killed within the time. Its parent learns of it only once this has asked.
  bool is_killed_within(std::chrono::milliseconds time) {
    for (const auto end = Clock::now() + time; Clock::now() < end; std::this_thread::sleep_for(10ms)) {
      int status = 0;
      if (waitpid(pid_, &status, __WALL | WNOHANG) != pid_) continue;
      traced_ = false;
      return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    }
    return false;
  }

 private:
  const pid_t pid_;
  bool traced_ = false, holds_ = false;
};

TEST(CliProcesses, ARankThatStopsAfterItsLastWordIsNamed) {
  // The others have all they need of it then: their steps end well.
  LongRun run("0.4");
  ASSERT_EQ(run.ranks().size(), 4u) << run.err();
  HeldBeforeSend held(run.ranks()[3]);
  if (held.is_refused()) GTEST_SKIP() << "this process may not trace its children: " << std::strerror(errno);
  ASSERT_TRUE(held.holds()) << run.err();
  ASSERT_TRUE(held.is_killed_within(400ms + 1s + 3s));
  EXPECT_EQ(run.wait(), 3);
  EXPECT_THAT(run.err(), HasSubstr(fmt::format("rank 3 (process {}) did not answer", run.ranks()[3])));
  EXPECT_THAT(run.err(), Not(HasSubstr("deadline")));
  EXPECT_TRUE(run.are_ranks_gone());
  EXPECT_EQ(run.names_left(), 0);
  testing::record_fault("a rank of moetail run --processes that stops between its last word and its answer",
                        testing::kProcesses, 1, "exit 3, rank named; no process and no segment left");
}

TEST(CliProcesses, TheRanksEndWithTheirParent) {
  for (const int signal : {SIGKILL, SIGTERM}) {
    LongRun run("60");
    ASSERT_EQ(run.ranks().size(), 4u) << run.err();
    kill(run.pid(), signal);
    EXPECT_EQ(run.wait(), -signal);
    EXPECT_TRUE(run.are_ranks_gone());
    EXPECT_EQ(run.names_left(), 0);
  }
  testing::record_fault("SIGKILL or SIGTERM of moetail run --processes itself", testing::kProcesses, 2,
                        "no process and no segment left");
}

}  // namespace
}  // namespace moetail::cli_testing
