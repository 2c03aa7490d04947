// SPDX-License-Identifier: Apache-2.0
// Measures the machine's read bandwidth and its multiply-add peak on all threads at once.
#include "engine/cpu/ceilings.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "engine/cpu/arith_targets.hpp"

namespace moetail::cpu {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr std::size_t kLineBytes = 64;

// Streams of one page each, side by side. Of the patterns tried (1 to 64 streams, of a page or of a 7168-byte row, 8 to
// 64 bytes a load, with and without software prefetch) none was faster; one stream alone had 3/4 of it.
constexpr std::size_t kStreams = 32;
constexpr std::size_t kStreamBytes = 4096;
constexpr std::size_t kBlockBytes = kStreams * kStreamBytes;

// A pass is short, so that the best one is one that nothing interrupted, and long beside a barrier (1 to 3 ms). A read
// pass takes one part of each thread's memory after the other: the caches have lost a part when its turn comes again.
constexpr std::size_t kPartBytes = 32 << 20;
constexpr double kReadSeconds = 0.6;
constexpr double kSpinSeconds = 0.15;
constexpr double kSpinPassSeconds = 1e-3;

/// Anonymous memory, in huge pages where the system gives them.
class Mapping {
 public:
  explicit Mapping(std::size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED)
      base::fail(Code::resource, "{} bytes to measure read bandwidth: no memory", bytes);
#ifdef MADV_HUGEPAGE
    madvise(data_, bytes, MADV_HUGEPAGE);  // a wish; the measurement is right without it
#endif
  }
  ~Mapping() {
    munmap(data_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const {
    return static_cast<std::byte*>(data_);
  }

 private:
  void* data_;
  std::size_t bytes_;
};

// The sanitizers would measure themselves, and shadow all of the memory.
#define MOETAIL_UNSANITIZED __attribute__((no_sanitize("address"), no_sanitize("thread")))

/// Untouched pages would all be one and the same page of zeros.
MOETAIL_UNSANITIZED void touch_all(std::byte* from, std::size_t bytes) {
  for (std::size_t page = 0; page < bytes; page += kStreamBytes) from[page] = std::byte{1};
}

/// One load a cache line.
MOETAIL_UNSANITIZED std::uint64_t read_all(const std::byte* from, std::size_t bytes) {
  std::uint64_t mix = 0;
  for (std::size_t block = 0; block < bytes; block += kBlockBytes) {
    for (std::size_t line = 0; line < kStreamBytes; line += kLineBytes) {
      const std::byte* at = from + block + line;
#pragma GCC unroll 32
      for (std::size_t stream = 0; stream < kStreams; ++stream) {
        mix ^= *reinterpret_cast<const std::uint64_t*>(at + stream * kStreamBytes);
      }
    }
  }
  return mix;
}

/// Threads that run passes together: `prepare(thread)` once, then `work(thread, pass)` until the time is used up.
/// Returns the shortest pass in seconds, from the first thread's begin to the last one's end.
double best_pass(int threads, double budget_s, const std::function<void(int)>& prepare,
                 const std::function<void(int, int)>& work) {
  enum Start { wait, go, give_up };
  std::atomic<int> start = wait;
  double best = 0;
  bool stop = false;  // written by thread 0 between two barriers
  std::vector<Clock::time_point> begin(static_cast<std::size_t>(threads));
  std::vector<Clock::time_point> end(begin.size());
  std::barrier gate(threads);
  const auto run = [&](int thread) {
    start.wait(wait);
    if (start == give_up) return;
    const auto self = static_cast<std::size_t>(thread);
    prepare(thread);
    gate.arrive_and_wait();
    const Clock::time_point first_begin = Clock::now();
    for (int pass = 0; !stop; ++pass) {
      gate.arrive_and_wait();
      begin[self] = Clock::now();
      work(thread, pass);
      end[self] = Clock::now();
      gate.arrive_and_wait();
      if (thread == 0) {
        const Clock::duration span =
            *std::max_element(end.begin(), end.end()) - *std::min_element(begin.begin(), begin.end());
        const double pass_s = std::chrono::duration<double>(span).count();
        best = pass == 0 ? pass_s : std::min(best, pass_s);
        stop = seconds_since(first_begin) > budget_s;
      }
      gate.arrive_and_wait();
    }
  };
  std::vector<std::thread> others;
  const auto release = [&](Start what) {
    start = what;
    start.notify_all();
  };
  try {
    for (int thread = 1; thread < threads; ++thread) others.emplace_back(run, thread);
  } catch (const std::system_error& error) {
    release(give_up);
    for (std::thread& other : others) other.join();
    base::fail(Code::resource, "threads = {}: only {} could be started: {}", threads, others.size() + 1,
               error.what());
  }
  release(go);
  run(0);
  for (std::thread& other : others) other.join();
  return best;
}

double measure_read(int threads) {
  // A quarter of a small machine's memory, so that measuring never pushes anyone out.
  const auto memory =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t wanted = std::min<std::size_t>(std::size_t{3} << 29, memory / 4);
  const auto count = static_cast<std::size_t>(threads);
  const std::size_t share = std::max(kBlockBytes, wanted / count);
  const std::size_t part = std::min(kPartBytes, share) / kBlockBytes * kBlockBytes;
  const std::size_t parts = share / part;
  const std::size_t slice = part * parts;
  const Mapping memory_read(slice * count);
  const auto own = [&](int thread) { return memory_read.data() + static_cast<std::size_t>(thread) * slice; };
  std::atomic<std::uint64_t> keep = 0;
  const double best_s = best_pass(
      threads, kReadSeconds, [&](int thread) { touch_all(own(thread), slice); },
      [&](int thread, int pass) {
        keep += read_all(own(thread) + static_cast<std::size_t>(pass) % parts * part, part);
      });
  return static_cast<double>(part * count) / best_s;
}

double measure_flops(int threads, const Target& target) {
  long rounds = 1 << 10;
  const auto shortest_of_three_s = [&] {  // one that was interrupted says nothing
    double shortest_s = kSpinPassSeconds;
    for (int i = 0; i < 3; ++i) {
      const Clock::time_point begin = Clock::now();
      target.spin(rounds);
      shortest_s = std::min(shortest_s, seconds_since(begin));
    }
    return shortest_s;
  };
  while (shortest_of_three_s() < kSpinPassSeconds) rounds *= 2;
  const double operations = target.spin(1) * static_cast<double>(rounds) * threads;
  return operations / best_pass(
                          threads, kSpinSeconds, [](int) {}, [&](int, int) { target.spin(rounds); });
}

}  // namespace

Ceilings measure_ceilings(int threads) {
  if (threads < 1) base::bad_argument("threads", threads, "1 or more");
  const Target& target = chosen_target();
  Ceilings ceilings;
  ceilings.read_bytes_per_s = measure_read(threads);
  ceilings.bf16_flops = measure_flops(threads, target);
  ceilings.threads = threads;
  ceilings.flops_target = target.arith.name;
  return ceilings;
}

}  // namespace moetail::cpu
