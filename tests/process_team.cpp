// SPDX-License-Identifier: Apache-2.0
#include "tests/process_team.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/error.hpp"
#include "transport/shared_memory.hpp"

namespace moetail::testing {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

RankProcess::RankProcess(const std::string& program, const std::string& setting) {
  int orders[2], answers[2];
  if (pipe2(orders, O_CLOEXEC) != 0 || pipe2(answers, O_CLOEXEC) != 0)
    base::fail(Code::resource, "pipe: {}", std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, orders[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, answers[1], STDOUT_FILENO);
  std::string path = program;
  char* arguments[] = {path.data(), nullptr};
  const std::string name = setting.substr(0, setting.find('=') + 1);
  std::string own = setting;
  std::vector<char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (name.empty() || !std::string_view(*entry).starts_with(name)) environment.push_back(*entry);
  if (own.size() > name.size()) environment.push_back(own.data());
  environment.push_back(nullptr);
  const int error = posix_spawn(&pid_, path.c_str(), &actions, nullptr, arguments, environment.data());
  posix_spawn_file_actions_destroy(&actions);
  close(orders[0]);
  close(answers[1]);
  orders_ = orders[1];
  answers_ = answers[0];
  if (error != 0) base::fail(Code::resource, "{}: {}", program, std::strerror(error));
  std::signal(SIGPIPE, SIG_IGN);  // an order to a rank that has died is part of the tests
}

RankProcess::~RankProcess() {
  close(orders_);
  close(answers_);
  if (reaped_) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void RankProcess::send(const json& order) {
  const std::string line = order.dump() + "\n";
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t written = write(orders_, line.data() + done, line.size() - done);
    if (written < 0) return;  // receive says what became of it
    done += static_cast<std::size_t>(written);
  }
}

json RankProcess::receive(std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  while (true) {
    if (const std::size_t line_end = unread_.find('\n'); line_end != std::string::npos) {
      const json answer = json::parse(unread_.substr(0, line_end));
      unread_.erase(0, line_end + 1);
      return answer;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return {{"late", true}};
    pollfd waiting{answers_, POLLIN, 0};
    if (poll(&waiting, 1, static_cast<int>(left)) <= 0) continue;
    char buffer[65536];
    const ssize_t got = read(answers_, buffer, sizeof buffer);
    if (got > 0) {
      unread_.append(buffer, static_cast<std::size_t>(got));
      continue;
    }
    int status = 0;
    if (!reaped_) waitpid(pid_, &status, 0);
    reaped_ = true;
    return {{"gone", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status)}};
  }
}

void RankProcess::signal(int signal) const {
  if (!reaped_) kill(pid_, signal);
}

bool RankProcess::wait_until_stopped() const {
  for (int i = 0; i < 1000; ++i) {
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WNOHANG) == 0 && info.si_pid == pid_)
      return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

ProcessTeam::ProcessTeam(const std::string& program, int ranks, const std::map<int, std::string>& settings)
    : program_(program) {
  for (int rank = 0; rank < ranks; ++rank) {
    const auto own = settings.find(rank);
    processes_.push_back(std::make_unique<RankProcess>(program, own == settings.end() ? "" : own->second));
  }
  // A loaded machine may take a second to start them all, which no deadline of a test shall count.
  all({{"do", "begin"}});
  renew_session();
}

void ProcessTeam::renew_session() {
  session_ = std::make_unique<ProcessSession>(ProcessSession::create(ranks()));
}

void ProcessTeam::replace(int rank) {
  processes_[static_cast<std::size_t>(rank)] = std::make_unique<RankProcess>(program_);
  (*this)[rank].ask({{"do", "begin"}});
  renew_session();
}

std::vector<json> ProcessTeam::each(const std::vector<json>& orders) {
  for (std::size_t rank = 0; rank < orders.size(); ++rank) processes_[rank]->send(orders[rank]);
  std::vector<json> answers;
  for (std::size_t rank = 0; rank < orders.size(); ++rank) answers.push_back(processes_[rank]->receive());
  return answers;
}

std::vector<json> ProcessTeam::all(const json& order) {
  return each(std::vector<json>(processes_.size(), order));
}

json ProcessTeam::join_order(int rank, const json& more) const {
  json order = {{"do", "join"}, {"rank", rank}, {"ranks", ranks()}, {"token", session_->token()}};
  order.update(more);
  return order;
}

std::vector<json> ProcessTeam::join(const json& more) {
  std::vector<json> orders;
  for (int rank = 0; rank < ranks(); ++rank) orders.push_back(join_order(rank, more));
  return each(orders);
}

json boxes_order(const Shape& shape) {
  return {{"do", "boxes"},
          {"shape",
           {{"hidden", shape.hidden},
            {"latent", shape.latent},
            {"ranks", shape.ranks},
            {"top_k", shape.top_k},
            {"capacity", shape.capacity},
            {"poll_capacity", shape.poll_capacity},
            {"eps", shape.eps}}}};
}

json call_order(Mode mode, int batch) {
  return {{"do", "call"}, {"mode", static_cast<int>(mode)}, {"batch", batch}};
}

std::vector<std::string> segments_of(pid_t maker) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename().string();
    if (transport::is_segment_name(name) && name.find(fmt::format("-{}-", maker)) != std::string::npos)
      names.push_back(name);
  }
  return names;
}

std::vector<std::string> ProcessTeam::segments() const {
  std::vector<std::string> names = segments_of(getpid());
  for (const auto& process : processes_)
    for (const std::string& name : segments_of(process->pid())) names.push_back(name);
  return names;
}

}  // namespace moetail::testing
