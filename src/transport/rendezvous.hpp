// SPDX-License-Identifier: Apache-2.0
// Where the processes of one group meet during set-up and recovery: rounds in which every rank leaves a letter and reads all others'.
// Never on the path of a call. docs/processes.md.
#pragma once

#include <chrono>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "transport/shared_memory.hpp"

namespace moetail::transport {

struct SessionBlock;

/// The meeting place itself, made by whoever starts the ranks and kept until all have joined.
class Session {
 public:
  /// `ranks`: how many will meet, 1 to kMaxRanks. Throws Code::resource.
  explicit Session(int ranks);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// The name of the segment: whoever knows it, and is the same user, can join.
  const std::string& token() const { return segment_.name(); }
  /// Ends every wait of the rendezvous, now and later, with Code::fault and `reason`; the first reason stays. From any thread.
  void cancel(const std::string& reason);

 private:
  SharedSegment segment_;
};

/// How a step went on one rank.
struct Outcome {
  Code code = Code::ok;
  std::string reason;
};

/// The outcome that the exception being handled stands for.
Outcome current_failure();

/// One rank's seat. Used by one thread at a time.
class Rendezvous {
 public:
  /// Takes seat `rank` of the session, without waiting. Throws Code::invalid_argument where the token is none, the session has another
  /// number of ranks, or the seat is taken; Code::fault where there is no such session (any more) or it is not to be trusted.
  Rendezvous(const std::string& token, int rank, int ranks, std::chrono::milliseconds deadline);
  ~Rendezvous();  ///< leaves: who waits for this rank hears of it
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  /// One round: returns every rank's `data` (at most kLongestData bytes), by rank, once all have come to the same `step`. Throws, on
  /// every rank alike, the code and reason of the first rank whose outcome is not ok, or Code::call_order where ranks are at different
  /// steps; and Code::fault where a rank has died, left, or not come within the deadline. After a fault no later round is served.
  std::vector<std::string> gather(const std::string& step, const std::string& data,
                                  const Outcome& outcome = {});
  /// A round without data, which nobody passes before all have come to it.
  void vote(const std::string& step, const Outcome& outcome = {}) { gather(step, {}, outcome); }
  /// Runs `work` and votes on whether it threw.
  template <typename Work>
  void vote_on(const std::string& step, Work work) {
    Outcome outcome;
    try {
      work();
    } catch (...) {
      outcome = current_failure();
    }
    vote(step, outcome);
  }

  /// Takes the session's name away. Once a round has passed, all have mapped it.
  void remove_name() noexcept { segment_.remove_name(); }

  static constexpr std::size_t kLongestData = 512;

 private:
  SessionBlock& block() const;
  void wait_for_all(const std::string& step, unsigned round) const;
  void check_peer(int peer, const std::string& step, unsigned round) const;
  [[noreturn]] void fail_for_all(const std::string& reason) const;
  void throw_if_cancelled() const;

  const int rank_;
  const int ranks_;
  const std::chrono::milliseconds deadline_;
  SharedSegment segment_;
  unsigned round_ = 0;
};

}  // namespace moetail::transport
