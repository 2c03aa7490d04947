// SPDX-License-Identifier: Apache-2.0
// What a stream and a launch are on CPU threads: a queue served in order by a thread of its own, and a team that runs the
// clusters of one launch together.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace moetail::cpu {

/// Work in order. Safe to use from any thread.
class StreamThread {
 public:
  explicit StreamThread(std::string name);
  ~StreamThread();  ///< runs what is enqueued, then ends
  StreamThread(const StreamThread&) = delete;
  StreamThread& operator=(const StreamThread&) = delete;

  void enqueue(std::function<void()> work);
  /// Returns when everything enqueued so far has run; rethrows the first exception that any of it left.
  void synchronize();
  /// The same, but leaves an exception for the next synchronize.
  void drain();
  /// Lets this stream wait, in order, for all that is enqueued on `other` now.
  void join(StreamThread& other);
  const std::string& name() const { return name_; }

 private:
  void serve();

  const std::string name_;
  std::mutex mutex_;
  std::condition_variable work_there_;
  std::condition_variable all_done_;
  std::deque<std::function<void()>> queue_;
  unsigned long enqueued_ = 0;
  unsigned long done_ = 0;
  bool ending_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

/// Threads that run the clusters of a launch: cluster 0 on the calling thread, the others on threads of the team.
class Team {
 public:
  /// Throws Error(Code::resource) that says how many threads there are when one cannot be started; those already started have ended then.
  explicit Team(int clusters);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int clusters() const { return static_cast<int>(threads_.size()) + 1; }
  /// Calls work(0) .. work(clusters - 1) at the same time and returns when all have: the boundary of a launch, at which everything
  /// one cluster did happens before everything of the next launch. Rethrows the first exception that any of them left.
  void run(const std::function<void(int)>& work);

 private:
  void serve(int cluster);
  void end();
  void run_part(const std::function<void(int)>& work, int cluster) noexcept;

  std::vector<std::thread> threads_;
  const std::function<void(int)>* work_ = nullptr;
  std::atomic<unsigned> launches_ = 0;
  std::atomic<int> running_ = 0;
  std::atomic<bool> ending_ = false;
  std::mutex mutex_;  // guards `error_`
  std::exception_ptr error_;
};

}  // namespace moetail::cpu
