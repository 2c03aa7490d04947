// SPDX-License-Identifier: Apache-2.0
// Children that each run one rank, and the parent's side of them.
#include "cli/process_steps.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/futex.hpp"

namespace moetail::cli {
namespace {

using Clock = std::chrono::steady_clock;

// A child that has nothing left to wait for ends in milliseconds.
constexpr std::chrono::milliseconds kGrace{1000};
// For the last of the ranks to have a step enqueued.
constexpr std::chrono::milliseconds kMeeting{200};
constexpr std::size_t kLongestText = 1024;
constexpr std::size_t kPageBytes = 4096;

enum Answer : char { kDone = 'd', kFailed = 'f' };

int num_threads() {
  int threads = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    threads += entry.exists() ? 1 : 0;
  return threads;
}

void send_word(int channel, int word) {
  // A child that is gone is seen by its closed channel.
  static_cast<void>(send(channel, &word, sizeof word, MSG_NOSIGNAL));
}

}  // namespace

struct alignas(double) ProcessSteps::Shared {
  /// Why a rank's steps ended. Written before its answer is sent.
  struct Failure {
    int code;
    bool first_hand;  ///< not by another rank's poison
    char text[kLongestText];
  };
  std::atomic<std::uint32_t> enqueued;  ///< ranks times steps that are ready to run
  Failure failures[protocol::kMaxRanks];

  double* times() { return reinterpret_cast<double*>(this + 1); }
};

ProcessSteps::ProcessSteps(const WorldOptions& options, std::span<const LayerWeights> weights,
                           const Inputs& inputs, Mode asked, Mode running)
    : options_(options),
      weights_(weights),
      inputs_(inputs),
      asked_(asked),
      running_(running),
      rows_of_rank_(output_size(inputs.spec(), weights.size(), 1)) {
  if (const int threads = num_threads(); threads != 1)
    base::fail(Code::internal, "--processes: {} threads: accepted is 1 where processes are forked", threads);
  // A caller may have left it ignored, and then nobody learns how a child ended.
  std::signal(SIGCHLD, SIG_DFL);
  const int ranks = inputs.spec().shape.ranks;
  const std::size_t head =
      (sizeof(Shared) + weights.size() * sizeof(double) + kPageBytes - 1) / kPageBytes * kPageBytes;
  shared_bytes_ = head + static_cast<std::size_t>(ranks) * rows_of_rank_ * sizeof(Bf16);
  void* const memory =
      mmap(nullptr, shared_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    base::fail(Code::resource, "{} bytes of shared memory for the outputs: {}", shared_bytes_,
               std::strerror(errno));
  shared_ = new (memory) Shared{};
  try {
    const ProcessSession session = ProcessSession::create(ranks);
    // What is buffered here must not be written by each child again.
    std::fflush(nullptr);
    for (int rank = 0; rank < ranks; ++rank) start(rank, session);
    for (Child& child : children_) child.answers_due = true;
    collect(ProcessGroup{}.setup_deadline, &session);
  } catch (...) {
    end_all(true);
    munmap(shared_, shared_bytes_);
    throw;
  }
}

ProcessSteps::~ProcessSteps() {
  end_all(false);
  munmap(shared_, shared_bytes_);
}

void ProcessSteps::start(int rank, const ProcessSession& session) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    base::fail(Code::resource, "rank {}: a channel to its process: {}", rank, std::strerror(errno));
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    for (const Child& other : children_) close(other.channel);
    serve(rank, ends[1], parent, session.token());
  }
  const int error = errno;
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    base::fail(Code::resource, "rank {}: its process: {}", rank, std::strerror(error));
  }
  children_.push_back({rank, pid, ends[0]});
}

// --- the child ---------------------------------------------------------------------------------------------

void ProcessSteps::serve(int rank, int channel, pid_t parent, const std::string& token) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);  // it died before it could be asked for the signal
  Shared::Failure& failure = shared_->failures[rank];
  failure.first_hand = true;
  Answer answer = kDone;
  try {
    serve_steps(rank, channel, token);
  } catch (const Error& error) {
    answer = kFailed;
    failure.code = static_cast<int>(error.code());
    std::strncpy(failure.text, error.what(), kLongestText - 1);
  } catch (const std::exception& error) {
    answer = kFailed;
    failure.code = static_cast<int>(Code::internal);
    std::strncpy(failure.text, error.what(), kLongestText - 1);
  }
  if (answer == kFailed) static_cast<void>(send(channel, &answer, 1, MSG_NOSIGNAL));
  // Not exit: what the parent registered or buffered is the parent's.
  _exit(0);
}

void ProcessSteps::serve_steps(int rank, int channel, const std::string& token) {
  ProcessGroup group;
  group.rank = rank;
  group.ranks = inputs_.spec().shape.ranks;
  group.token = token;
  const World world = World::processes(group, options_);
  Bf16* const rows = reinterpret_cast<Bf16*>(reinterpret_cast<char*>(shared_) + shared_bytes_) -
                     static_cast<std::size_t>(group.ranks - rank) * rows_of_rank_;
  StepDriver driver(world, {rows, rows_of_rank_}, weights_, inputs_, asked_, running_);
  int step = 0;
  driver.call_before_release([&] { meet_before_release(step); });
  while (true) {
    const Answer done = kDone;
    if (send(channel, &done, 1, MSG_NOSIGNAL) != 1) return;
    if (recv(channel, &step, sizeof step, MSG_WAITALL) != static_cast<ssize_t>(sizeof step)) return;
    try {
      driver.run_step(step);
    } catch (...) {
      shared_->failures[rank].first_hand = !driver.is_poisoned_by_another();
      throw;
    }
    if (rank == 0) std::copy(driver.layer_us().begin(), driver.layer_us().end(), shared_->times());
  }
}

// All ranks begin a step together, as they would behind one launch of a graph; who does not come is the protocol's to name.
void ProcessSteps::meet_before_release(int step) const {
  const auto all =
      static_cast<std::uint32_t>(inputs_.spec().shape.ranks) * static_cast<std::uint32_t>(step + 1);
  auto* const word = reinterpret_cast<std::uint32_t*>(&shared_->enqueued);
  std::uint32_t seen = shared_->enqueued.fetch_add(1) + 1;
  if (seen == all) return base::futex_wake_all(word);
  const auto end = Clock::now() + kMeeting;
  for (; seen < all && Clock::now() < end; seen = shared_->enqueued.load())
    base::futex_wait(word, seen, std::chrono::milliseconds(20));
}

// --- the parent --------------------------------------------------------------------------------------------

void ProcessSteps::run_step(int step) {
  for (Child& child : children_) {
    send_word(child.channel, step);
    child.answers_due = true;
  }
  collect(step == 0 ? options_.first_deadline : options_.deadline, nullptr);
}

void ProcessSteps::collect(std::chrono::milliseconds limit, const ProcessSession* session) {
  std::string dead;
  const Shared::Failure* failure = nullptr;
  std::optional<Clock::time_point>
      end;  // of the wait for those that owe an answer where others have given theirs
  const auto is_waiting = [](const Child& child) { return child.answers_due; };
  while (std::any_of(children_.begin(), children_.end(), is_waiting)) {
    std::vector<pollfd> channels;
    for (const Child& child : children_)
      channels.push_back({child.answers_due ? child.channel : -1, POLLIN, 0});
    const auto left =
        end ? std::chrono::duration_cast<std::chrono::milliseconds>(*end - Clock::now()) : kGrace;
    if (end && left.count() <= 0) break;
    poll(channels.data(), channels.size(), static_cast<int>(std::min(left, kGrace).count()) + 1);
    for (std::size_t i = 0; i < children_.size(); ++i) {
      Child& child = children_[i];
      if (channels[i].revents == 0) continue;
      char answer = 0;
      const ssize_t got = recv(child.channel, &answer, 1, MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      child.answers_due = false;
      if (got == 1 && answer == kDone) {
        // A rank that has stopped after its last word is missed by no rank's wait, only by this one.
        if (!end && limit.count() > 0) end = Clock::now() + limit + kGrace;
        continue;
      }
      if (failure == nullptr && dead.empty()) end = Clock::now() + limit + kGrace;
      if (got == 1) {
        const Shared::Failure& theirs = shared_->failures[child.rank];
        if (failure == nullptr || (theirs.first_hand && !failure->first_hand)) failure = &theirs;
      } else {
        const std::string text = end_of(child);
        if (dead.empty()) dead = text;
        if (session != nullptr) session->cancel(text);
      }
    }
  }
  for (const Child& child : children_)
    if (child.answers_due && dead.empty())
      dead = fmt::format("rank {} (process {}) did not answer", child.rank, child.pid);
  if (failure == nullptr && dead.empty()) return;
  end_all(true);
  const std::string said = failure == nullptr ? "" : failure->text;
  if (dead.empty()) throw Error(static_cast<Code>(failure->code), said);
  throw Error(Code::fault, said.empty() || said == dead ? dead : dead + "; " + said);
}

std::string ProcessSteps::end_of(Child& child) {
  int status = 0;
  pid_t ended = 0;
  do {
    ended = waitpid(child.pid, &status, 0);
  } while (ended < 0 && errno == EINTR);
  child.reaped = true;
  const std::string who = fmt::format("rank {} (process {})", child.rank, child.pid);
  if (ended != child.pid) return fmt::format("{} ended, nobody knows how: {}", who, std::strerror(errno));
  if (WIFSIGNALED(status))
    return fmt::format("{} was killed by signal {} ({})", who, WTERMSIG(status), strsignal(WTERMSIG(status)));
  return fmt::format("{} ended with exit status {}", who, WEXITSTATUS(status));
}

void ProcessSteps::end_all(bool at_once) noexcept {
  for (const Child& child : children_) close(child.channel);
  const auto end = Clock::now() + (at_once ? std::chrono::milliseconds(0) : kGrace);
  for (Child& child : children_) {
    while (!child.reaped) {
      child.reaped = waitpid(child.pid, nullptr, WNOHANG) != 0;
      if (child.reaped) break;
      if (Clock::now() >= end) {
        kill(child.pid, SIGKILL);
        waitpid(child.pid, nullptr, 0);
        child.reaped = true;
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  children_.clear();
}

std::span<const Bf16> ProcessSteps::output(int position, int rank) const {
  const std::size_t size = rows_of_rank_ / weights_.size();
  const Bf16* const rows =
      reinterpret_cast<const Bf16*>(reinterpret_cast<const char*>(shared_) + shared_bytes_) -
      static_cast<std::size_t>(inputs_.spec().shape.ranks - rank) * rows_of_rank_;
  return {rows + static_cast<std::size_t>(position) * size, size};
}

std::span<const double> ProcessSteps::layer_us() const {
  return {shared_->times(), weights_.size()};
}

}  // namespace moetail::cli
