// SPDX-License-Identifier: Apache-2.0
// Where the protocol's time goes on CPU threads: single operations of the mailbox verbs over the engine's memory policy.
// A program of its own for Google Benchmark; sizes are Kimi K3's at T = 8.
#include <benchmark/benchmark.h>

#include <atomic>
#include <memory>
#include <new>
#include <thread>

#include "engine/cpu/memory.hpp"
#include "protocol/mailbox.hpp"

namespace moetail {
namespace {

using cpu::HostMemory;
using protocol::Line;
using protocol::u64;

constexpr int kLatentLines = 3584 / 8;

class Lines {
 public:
  explicit Lines(int count) : data_(new (std::align_val_t{64}) Line[static_cast<std::size_t>(count)]) {
    for (int i = 0; i < count; ++i) data_[i] = Line{{0x3F803F80u, 0xBF803F80u, 1u, static_cast<unsigned>(i)}};
  }
  ~Lines() { ::operator delete[](data_, std::align_val_t{64}); }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;
  Line* get() const { return data_; }

 private:
  Line* data_;
};

void count_bytes(benchmark::State& state, int lines) {
  state.SetBytesProcessed(state.iterations() * lines * protocol::kLineBytes);
}

// Lines stay in the first or second level cache: the cost of the accesses themselves.
void store_run(benchmark::State& state) {
  const int lines = static_cast<int>(state.range(0));
  const Lines from(lines), to(lines);
  HostMemory memory;
  for (auto _ : state) {
    protocol::store_run(memory, to.get(), from.get(), lines);
    benchmark::ClobberMemory();
  }
  count_bytes(state, lines);
}
BENCHMARK(store_run)->Arg(kLatentLines)->Arg(8 * kLatentLines);

void clean_run(benchmark::State& state) {
  const int lines = static_cast<int>(state.range(0));
  const Lines from(lines), to(lines);
  for (auto _ : state) {
    protocol::clean_run(to.get(), from.get(), lines);
    benchmark::ClobberMemory();
  }
  count_bytes(state, lines);
}
BENCHMARK(clean_run)->Arg(kLatentLines)->Arg(8 * kLatentLines);

void poll_run(benchmark::State& state) {
  const int lines = static_cast<int>(state.range(0));
  const Lines from(lines);
  HostMemory memory;
  for (auto _ : state) {
    benchmark::DoNotOptimize(protocol::poll_run(memory, from.get(), 0, lines));
    benchmark::ClobberMemory();
  }
  count_bytes(state, lines);
}
BENCHMARK(poll_run)->Arg(kLatentLines)->Arg(8 * kLatentLines);

void arm_lines(benchmark::State& state) {
  const int lines = static_cast<int>(state.range(0));
  const Lines to(lines);
  HostMemory memory;
  for (auto _ : state) {
    protocol::arm_lines(memory, to.get(), {0, static_cast<u64>(lines)});
    benchmark::ClobberMemory();
  }
  count_bytes(state, lines);
}
BENCHMARK(arm_lines)->Arg(kLatentLines)->Arg(8 * kLatentLines);

// One word there and one back between two threads: half of it is the time from a publication to its poll.
void publish_to_poll(benchmark::State& state) {
  struct alignas(128) Box {
    Line line;
  };
  const auto boxes = std::make_unique<Box[]>(2);
  HostMemory memory;
  std::atomic<bool> ends = false;
  const auto wait_for = [&](const Line* from, unsigned value) {
    while (memory.load(from).word[0] != value)
      if (ends.load(std::memory_order_relaxed)) return false;
    return true;
  };
  std::thread echo([&] {
    for (unsigned value = 1; wait_for(&boxes[0].line, value); ++value)
      memory.store(&boxes[1].line, Line{{value, value, value, value}});
  });
  unsigned value = 0;
  for (auto _ : state) {
    ++value;
    memory.store(&boxes[0].line, Line{{value, value, value, value}});
    wait_for(&boxes[1].line, value);
  }
  ends.store(true);
  echo.join();
  state.counters["one_way_ns"] =
      benchmark::Counter(2e-9 * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(publish_to_poll)->UseRealTime();

// A latent row that another core has just written: what a poll costs when the lines come from the peer's cache.
void poll_run_from_peer(benchmark::State& state) {
  const int lines = static_cast<int>(state.range(0));
  const Lines from(lines), mailbox(lines);
  HostMemory memory;
  std::atomic<long> asked = 0, written = 0;
  std::thread peer([&] {
    for (long turn = 1;; ++turn) {
      long now = 0;
      while ((now = asked.load(std::memory_order_acquire)) < turn && now >= 0) {
      }
      if (now < 0) return;
      protocol::store_run(memory, mailbox.get(), from.get(), lines);
      written.store(turn, std::memory_order_release);
    }
  });
  long turn = 0;
  for (auto _ : state) {
    asked.store(++turn, std::memory_order_release);
    while (written.load(std::memory_order_acquire) < turn) {
    }
    const auto begin = std::chrono::steady_clock::now();
    benchmark::DoNotOptimize(protocol::poll_run(memory, mailbox.get(), 0, lines));
    benchmark::ClobberMemory();
    const auto end = std::chrono::steady_clock::now();
    state.SetIterationTime(std::chrono::duration<double>(end - begin).count());
  }
  asked.store(-1);
  peer.join();
  count_bytes(state, lines);
}
BENCHMARK(poll_run_from_peer)->Arg(kLatentLines)->UseManualTime();

}  // namespace
}  // namespace moetail
