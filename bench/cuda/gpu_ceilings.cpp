// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda/gpu_ceilings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "kernels/plan.hpp"

namespace moetail::bench {
namespace {

using protocol::u32;
using protocol::u64;

constexpr int kRepeats = 5;
constexpr double kBusyUs = 20'000;
constexpr unsigned kCopyThreads = 512, kEmptyThreads = 288, kWarp = 32;
constexpr unsigned kCopyBlocksPerSm = 4;
constexpr u64 kLinesInFlight = 8;  // probes.cu has it too
constexpr std::size_t kLineBytes = 16;
constexpr int kPasses = 4;  // over the memory, in one graph: a launch's own time vanishes beside them
// A latency is a slope: what a launch costs besides the rounds is in both and cancels.
constexpr u32 kFewRounds = 200, kManyRounds = 1000;
constexpr std::size_t kPollDistance = 64;  // words; probes.cu has it too
constexpr std::size_t kExchangeBytes = 512;

double slope_us(const Gpu& gpu, const std::function<void(u32 rounds)>& enqueue) {
  const TimedGraph few(gpu, [&] { enqueue(kFewRounds); }), many(gpu, [&] { enqueue(kManyRounds); });
  return (many.least_us(kRepeats, kBusyUs) - few.least_us(kRepeats, kBusyUs)) / (kManyRounds - kFewRounds);
}

void measure_bandwidth(const Gpu& gpu, u64 bytes, GpuCeilings& found) {
  cuda::Launch launch;
  launch.threads = kCopyThreads;
  launch.grid = kCopyBlocksPerSm * static_cast<unsigned>(gpu.facts().num_sms);
  const u64 step = u64{launch.grid} * launch.threads * kLinesInFlight;
  // Small shapes have fewer bytes than one step of the whole device: fewer blocks then.
  const u64 wanted = std::max<u64>(bytes / kLineBytes, launch.threads * kLinesInFlight);
  if (wanted < step) launch.grid = static_cast<unsigned>(wanted / (launch.threads * kLinesInFlight));
  const u64 divisor = u64{launch.grid} * launch.threads * kLinesInFlight;
  const u64 lines = wanted / divisor * divisor;
  found.bytes = lines * kLineBytes;
  const cuda::DeviceMemory from = gpu.allocate(found.bytes), to = gpu.allocate(found.bytes);
  gpu.stream().fill(from.address(), 0, found.bytes / sizeof(u32));
  const GpuKernel copy = gpu.kernel(kProbeKernels, "moetail_probe_copy", launch);
  const GpuKernel read = gpu.kernel(kProbeKernels, "moetail_probe_read", launch);
  const auto* const source = from.as<const protocol::Line>();
  const TimedGraph copies(gpu, [&] {
    for (int i = 0; i < kPasses; ++i) gpu.launch(copy, source, to.as<protocol::Line>(), lines);
  });
  const TimedGraph reads(gpu, [&] {
    for (int i = 0; i < kPasses; ++i) gpu.launch(read, source, to.as<u32>(), lines);
  });
  const double passed = 1e6 * kPasses * static_cast<double>(found.bytes);
  found.copy_bytes_per_second = 2 * passed / copies.least_us(kRepeats, kBusyUs);
  found.read_bytes_per_second = passed / reads.least_us(kRepeats, kBusyUs);
}

double measure_chain(const Gpu& gpu, int chain, bool dependent) {
  cuda::Launch launch;
  launch.grid = kProbeBlocks;
  launch.threads = kEmptyThreads;
  launch.dependent = dependent;
  const GpuKernel empty = gpu.kernel(kProbeKernels, "moetail_probe_empty", launch);
  const TimedGraph graph(gpu, [&] {
    for (int i = 0; i < chain; ++i) gpu.launch(empty);
  });
  return graph.least_us(kRepeats, kBusyUs) / chain;
}

double measure_publish(const Gpu& gpu) {
  cuda::Launch launch;
  launch.grid = 2;
  launch.threads = kWarp;
  // More than half of an SM's shared memory each: the two blocks cannot share one.
  launch.shared_bytes = gpu.facts().shared_bytes_per_sm / 2;
  const GpuKernel publish = gpu.kernel(kProbeKernels, "moetail_probe_publish", launch);
  const cuda::DeviceMemory words = gpu.allocate(2 * kPollDistance * sizeof(u32));
  const double round_us = slope_us(gpu, [&](u32 rounds) {
    gpu.stream().fill(words.address(), 0, words.bytes() / sizeof(u32));
    gpu.launch(publish, words.as<u32>(), rounds);
  });
  // Once more by itself, so that a pair that gave up is seen whichever graph ran last.
  for (const u32 rounds : {kManyRounds, kFewRounds}) {
    gpu.stream().fill(words.address(), 0, words.bytes() / sizeof(u32));
    gpu.launch(publish, words.as<u32>(), rounds);
    u32 last[2 * kPollDistance] = {};
    gpu.download(last, words.as<void>(), sizeof last);
    for (const std::size_t block : {std::size_t{0}, kPollDistance})
      if (last[block] != rounds)
        base::fail(Code::fault,
                   "publish-to-poll probe: a block saw {} of {} publications: the other one did not answer",
                   last[block], rounds);
  }
  return round_us / 2;
}

double measure_exchange(const Gpu& gpu, GpuCeilings& found) {
  found.cluster = kernels::device_shape(gpu.facts().arch()).max_cluster;
  cuda::Launch launch;
  launch.grid = launch.cluster = static_cast<unsigned>(found.cluster);
  launch.threads = kWarp;
  launch.shared_bytes = kExchangeBytes;
  const GpuKernel exchange = gpu.kernel(kProbeKernels, "moetail_probe_exchange", launch);
  const cuda::DeviceMemory done = gpu.allocate(launch.grid * sizeof(u32));
  return slope_us(gpu, [&](u32 rounds) { gpu.launch(exchange, rounds, done.as<u32>()); });
}

}  // namespace

std::string GpuCeilings::text() const {
  return fmt::format(
      "copy {:.0f} GB/s, read {:.0f} GB/s (over {:.0f} MB), chained empty launches of {} blocks {:.2f} us, "
      "dependent "
      "{:.2f} us, "
      "publish to poll {:.2f} us, exchange of {} blocks {:.2f} us",
      copy_bytes_per_second / 1e9, read_bytes_per_second / 1e9, static_cast<double>(bytes) / 1e6,
      kProbeBlocks, launch_us, dependent_launch_us, publish_us, cluster, exchange_us);
}

GpuCeilings measure_gpu_ceilings(const Gpu& gpu, std::uint64_t bytes, int chain) {
  GpuCeilings found;
  measure_bandwidth(gpu, bytes, found);
  found.launch_us = measure_chain(gpu, chain, false);
  found.dependent_launch_us = measure_chain(gpu, chain, true);
  found.publish_us = measure_publish(gpu);
  found.exchange_us = measure_exchange(gpu, found);
  return found;
}

}  // namespace moetail::bench
