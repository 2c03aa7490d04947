// SPDX-License-Identifier: Apache-2.0
#include "tests/emulator/streams.hpp"

#include <cstdio>

namespace moetail::emulator {

void Machine::run() {
  std::unique_lock lock(mutex);
  while (true) {
    if (error == Result::success && advance()) changed.notify_all();
    if (error == Result::success && !the_loop.is_idle()) {
      lock.unlock();
      std::string what;
      try {
        the_loop.run(4096);
      } catch (const std::exception& exception) {
        what = exception.what();
      }
      lock.lock();
      if (!what.empty()) break_down(what);
      continue;
    }
    if (error == Result::success && is_stuck()) {
      break_down("no thread of the kernels that run can go on");
      continue;
    }
    changed.wait_for(lock, std::chrono::milliseconds(50));
  }
}

void Machine::break_down(const std::string& what) {
  std::fprintf(stderr, "emulated GPU: %s\n", what.c_str());
  the_loop.drop();
  error = Result::launch_failed;
  changed.notify_all();
}

bool Machine::is_stuck() const {
  for (const CUstream_st* stream : streams)
    for (const auto& operation : stream->queue)
      if (operation->grid && !operation->ended && !operation->grid->has_ended()) return true;
  return false;
}

bool Machine::advance() {
  bool any = false;
  for (bool again = true; again;) {
    again = false;
    for (auto it = streams.begin(); it != streams.end();) {
      CUstream_st* const stream = *it++;
      while (advance(*stream)) again = true;
      if (stream->destroyed && stream->queue.empty()) {
        streams.erase(stream);
        delete stream;
      }
    }
    any = any || again;
  }
  return any;
}

bool Machine::advance(CUstream_st& stream) {
  bool any = false;
  const Operation* previous = nullptr;
  for (const auto& operation : stream.queue) {
    if (!operation->started && may_start(*operation, previous)) {
      start(*operation);
      any = true;
    }
    if (operation->grid && previous == nullptr) the_loop.complete_predecessor_of(*operation->grid);
    if (operation->grid && previous == nullptr && operation->grid->has_ended()) operation->ended = true;
    if (!operation->started) break;
    previous = operation.get();
    if (!operation->grid) break;  // only a kernel's successor may start before its end
  }
  while (!stream.queue.empty() && stream.queue.front()->ended) {
    if (stream.queue.front()->host_thread.joinable()) stream.queue.front()->host_thread.join();
    stream.queue.pop_front();
    any = true;
  }
  return any;
}

bool Machine::may_start(const Operation& operation, const Operation* previous) {
  if (operation.awaits) return previous == nullptr && operation.awaits->reached;
  if (previous == nullptr) return true;
  return operation.kernel && operation.kernel->dependent && previous->grid &&
         previous->grid->lets_successor_start();
}

void Machine::start(Operation& operation) {
  operation.started = true;
  if (operation.kernel) {
    const Kernel& kernel = *operation.kernel;
    operation.grid = std::make_unique<Grid>(*kernel.function->entry, kernel.function->name, kernel.shape,
                                            kernel.parameters);
    the_loop.start(*operation.grid);
    return;
  }
  if (operation.host) {
    operation.host_thread = std::thread([this, &operation] {
      operation.host();
      const std::lock_guard lock(mutex);
      operation.ended = true;
      changed.notify_all();
    });
    return;
  }
  if (operation.action) operation.action();
  if (operation.records) {
    operation.records->reached = true;
    operation.records->time = Clock::now();
  }
  operation.ended = true;
}

Machine& machine() {
  static Machine* const the_machine = new Machine;  // its thread outlives everything
  return *the_machine;
}

namespace {
CUstream_st& default_stream() {
  static CUstream_st* const stream = [] {
    auto* made = new CUstream_st;
    machine().streams.insert(made);
    return made;
  }();
  return *stream;
}
}  // namespace

void enqueue(CUstream_st* stream, std::unique_ptr<Operation> operation) {
  CUstream_st& queue = stream != nullptr ? *stream : default_stream();
  if (queue.capture != nullptr)
    queue.capture->operations.push_back(std::move(operation));
  else
    queue.queue.push_back(std::move(operation));
  machine().changed.notify_all();
}

std::unique_ptr<Operation> copy_of(const Operation& operation) {
  auto copy = std::make_unique<Operation>();
  copy->kernel = operation.kernel;
  copy->action = operation.action;
  copy->host = operation.host;
  return copy;
}

Result wait_for_stream(std::unique_lock<std::mutex>& lock, CUstream_st* stream) {
  const CUstream_st& it = stream != nullptr ? *stream : default_stream();
  return machine().wait_for(lock, [&] { return it.queue.empty(); });
}

Result wait_for_all(std::unique_lock<std::mutex>& lock) {
  return machine().wait_for(lock, [] {
    for (const CUstream_st* stream : machine().streams)
      if (!stream->queue.empty()) return false;
    return true;
  });
}

}  // namespace moetail::emulator
