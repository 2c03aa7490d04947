// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/stream.hpp"

#include <pthread.h>

#include <future>
#include <system_error>
#include <utility>

#include "base/error.hpp"

namespace moetail::cpu {

StreamThread::StreamThread(std::string name) : name_(std::move(name)), thread_([this] { serve(); }) {
  pthread_setname_np(thread_.native_handle(), name_.substr(0, 15).c_str());
}

StreamThread::~StreamThread() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  work_there_.notify_one();
  thread_.join();
}

void StreamThread::enqueue(std::function<void()> work) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    ++enqueued_;
  }
  work_there_.notify_one();
}

void StreamThread::synchronize() {
  drain();
  std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void StreamThread::drain() {
  std::unique_lock lock(mutex_);
  const unsigned long target = enqueued_;
  all_done_.wait(lock, [&] { return done_ >= target; });
}

void StreamThread::join(StreamThread& other) {
  auto reached = std::make_shared<std::promise<void>>();
  other.enqueue([reached] { reached->set_value(); });
  enqueue([future = reached->get_future().share()] { future.wait(); });
}

void StreamThread::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_there_.wait(lock, [&] { return ending_ || !queue_.empty(); });
    if (queue_.empty()) return;
    auto work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    std::exception_ptr error;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    work = nullptr;
    lock.lock();
    if (error && !error_) error_ = error;
    ++done_;
    all_done_.notify_all();
  }
}

Team::Team(int clusters) {
  threads_.reserve(static_cast<std::size_t>(clusters) - 1);
  try {
    for (int cluster = 1; cluster < clusters; ++cluster)
      threads_.emplace_back([this, cluster] { serve(cluster); });
  } catch (const std::system_error& error) {
    const std::size_t started = threads_.size() + 1;
    end();
    base::fail(Code::resource,
               "threads of one rank = {}: the system gave {} ({}): accepted is fewer threads in all",
               clusters, started, error.what());
  }
}

Team::~Team() {
  end();
}

void Team::end() {
  ending_.store(true, std::memory_order_release);
  launches_.fetch_add(1, std::memory_order_acq_rel);
  launches_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Team::run(const std::function<void(int)>& work) {
  if (!threads_.empty()) {
    work_ = &work;
    running_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
    launches_.fetch_add(1, std::memory_order_acq_rel);
    launches_.notify_all();
  }
  run_part(work, 0);
  // std::atomic::wait spins briefly, then parks.
  for (int left = running_.load(std::memory_order_acquire); left != 0;
       left = running_.load(std::memory_order_acquire))
    running_.wait(left, std::memory_order_acquire);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Team::run_part(const std::function<void(int)>& work, int cluster) noexcept {
  try {
    work(cluster);
  } catch (...) {  // the others still use `work`, and a thread of the team has nobody above it
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void Team::serve(int cluster) {
  for (unsigned seen = 0;; ++seen) {
    launches_.wait(seen, std::memory_order_acquire);
    if (ending_.load(std::memory_order_acquire)) return;
    run_part(*work_, cluster);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_all();
  }
}

}  // namespace moetail::cpu
