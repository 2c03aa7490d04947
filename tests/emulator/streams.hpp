// SPDX-License-Identifier: Apache-2.0
// Streams, events and graphs of the emulated GPU, in the order that CUDA promises and no more than that. One thread is the device.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/cuda/driver_abi.hpp"
#include "tests/emulator/grid.hpp"

// What the driver's handles point to is the driver's own matter: the tags are global.
struct CUfunc_st {
  std::string name;
  const moetail::emulator::Entry* entry = nullptr;
};

namespace moetail::emulator {

using cuda::abi::Result;
using Clock = std::chrono::steady_clock;

/// What an event stands for since it was recorded.
struct Mark {
  bool reached = false;
  Clock::time_point time;
};

struct Kernel {
  const CUfunc_st* function;
  LaunchShape shape;
  std::vector<std::vector<std::byte>> parameters;
  bool dependent;
};

/// One thing in a stream. A kernel has a grid once it runs; of the rest, whichever is set.
struct Operation {
  std::optional<Kernel> kernel;
  std::function<void()> action;  ///< on the device
  std::function<void()> host;    ///< on a thread of its own
  std::shared_ptr<Mark> records, awaits;

  bool started = false, ended = false;
  std::unique_ptr<Grid> grid;
  std::thread host_thread;
};

}  // namespace moetail::emulator

struct CUgraph_st {
  std::vector<std::shared_ptr<const moetail::emulator::Operation>>
      operations;  // in an order that satisfies all dependencies
};
struct CUgraphExec_st {
  std::vector<std::shared_ptr<const moetail::emulator::Operation>> operations;
};
struct CUstream_st {
  std::deque<std::unique_ptr<moetail::emulator::Operation>> queue;
  CUgraph_st* capture = nullptr;
  bool destroyed = false;
};
struct CUevent_st {
  std::shared_ptr<moetail::emulator::Mark> mark;
  CUgraph_st* capture = nullptr;
};

namespace moetail::emulator {

class Machine {
 public:
  std::mutex mutex;
  std::condition_variable changed;  ///< there is something to do, or something has ended
  std::set<CUstream_st*> streams;
  struct Memory {
    std::size_t bytes;
    bool is_device;
  };
  std::map<std::uintptr_t, Memory> memory;  ///< that the device can address, by where it begins
  Result error = Result::success;           ///< stays

  Machine() : thread_([this] { run(); }) { thread_.detach(); }

  /// Until `is_true` or an error. With the mutex held.
  template <typename Condition>
  Result wait_for(std::unique_lock<std::mutex>& lock, const Condition& is_true) {
    changed.wait(lock, [&] { return error != Result::success || is_true(); });
    return error;
  }

  /// What `address` lies in, or null: pageable memory.
  const Memory* memory_of(const void* address) const {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    const auto after = memory.upper_bound(at);
    if (after == memory.begin()) return nullptr;
    const auto& [begin, it] = *std::prev(after);
    return at < begin + it.bytes ? &it : nullptr;
  }

 private:
  void run();
  void break_down(const std::string& what);
  bool is_stuck() const;
  /// Starts what may start and takes away what has ended. Whether anything changed.
  bool advance();
  bool advance(CUstream_st& stream);
  static bool may_start(const Operation& operation, const Operation* previous);
  void start(Operation& operation);

  std::thread thread_;
};

Machine& machine();
/// Adds to a stream, or to the graph that it captures. With the mutex held.
void enqueue(CUstream_st* stream, std::unique_ptr<Operation> operation);
std::unique_ptr<Operation> copy_of(const Operation& operation);
/// Until all that is in the stream, or in all of them, has ended, or an error. With the mutex held.
Result wait_for_stream(std::unique_lock<std::mutex>& lock, CUstream_st* stream);
Result wait_for_all(std::unique_lock<std::mutex>& lock);

/// Does `body` with the mutex held; nothing, once there was an error.
template <typename Body>
Result guarded(const Body& body) {
  const std::lock_guard lock(machine().mutex);
  if (machine().error != Result::success) return machine().error;
  return body();
}
/// The same of what cannot fail.
template <typename Body>
Result done(const Body& body) {
  return guarded([&] {
    body();
    return Result::success;
  });
}

}  // namespace moetail::emulator
