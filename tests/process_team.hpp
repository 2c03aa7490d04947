// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes of their own, as tests drive them: orders to each, answers from each, signals, and every wait bounded.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "moetail/moetail.hpp"

namespace moetail::testing {

/// A running program tests/process_rank, killed at the latest with the object.
class RankProcess {
 public:
  /// `program`: its path. `setting`: "NAME=value" in its environment, where an empty value takes the name out; empty: none. Throws Error
  /// where it cannot be started.
  explicit RankProcess(const std::string& program, const std::string& setting = {});
  ~RankProcess();
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  void send(const nlohmann::json& order);
  /// The answer to the oldest order without one; {"gone": SIGNAL or exit status} where the process ends first, {"late": true} after
  /// `limit`.
  nlohmann::json receive(std::chrono::milliseconds limit = std::chrono::seconds(60));
  nlohmann::json ask(const nlohmann::json& order) {
    send(order);
    return receive();
  }
  void signal(int signal) const;
  /// Returns once it is stopped by a signal. False after ten seconds.
  bool wait_until_stopped() const;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int orders_ = -1;
  int answers_ = -1;
  std::string unread_;
  bool reaped_ = false;
};

/// A session and its ranks, started but not joined.
class ProcessTeam {
 public:
  /// `settings`: of single ranks' environments.
  ProcessTeam(const std::string& program, int ranks, const std::map<int, std::string>& settings = {});

  int ranks() const { return static_cast<int>(processes_.size()); }
  RankProcess& operator[](int rank) { return *processes_[static_cast<std::size_t>(rank)]; }
  /// The same order to every rank, and all answers, by rank.
  std::vector<nlohmann::json> all(const nlohmann::json& order);
  /// One order each.
  std::vector<nlohmann::json> each(const std::vector<nlohmann::json>& orders);
  /// Orders "join" of every rank, each with `more` added.
  std::vector<nlohmann::json> join(const nlohmann::json& more = nlohmann::json::object());
  nlohmann::json join_order(int rank, const nlohmann::json& more = nlohmann::json::object()) const;
  /// A new process in the place of one that has gone, and a new session for all; nobody has joined it.
  void replace(int rank);
  void renew_session();
  const ProcessSession& session() const { return *session_; }
  /// Names in shared memory that any of the ranks, or the session, has left so far.
  std::vector<std::string> segments() const;

 private:
  std::string program_;
  std::unique_ptr<ProcessSession> session_;
  std::vector<std::unique_ptr<RankProcess>> processes_;
};

nlohmann::json boxes_order(const Shape& shape);
/// Order for a call of `mode`.
nlohmann::json call_order(Mode mode, int batch);

/// Names in shared memory that this process made. Other tests run at the same time.
std::vector<std::string> segments_of(pid_t maker);

}  // namespace moetail::testing
