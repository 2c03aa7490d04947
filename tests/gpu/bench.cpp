// SPDX-License-Identifier: Apache-2.0
// Replay timing: 93 layers with weights of their own in one graph, launches chained by dependent launch, expert rows in L2.
#include <algorithm>
#include <string>

#include "tests/gpu/rig.hpp"

namespace moetail::gpu {
namespace {

constexpr int kLayers = 93;
constexpr int kReplays = 20;
constexpr int kRowCopies = 4;  // rotating, so that rows come from L2 and not from L1

struct Timing {
  double median_us = 0, least_us = 0;
};

/// Mean over blocks of the marks of an experiment (-DMOETAIL_MARKS=1), in SM clocks since the block's entry, and when the blocks
/// entered and left by the global clock.
void print_marks(const Gpu& gpu, const cuda::DeviceMemory& marks, int blocks) {
  std::vector<u64> values(static_cast<std::size_t>(blocks) * 3 * 16 * 2);
  gpu.stream->copy(values.data(), marks.address(), values.size() * 8);
  gpu.stream->synchronize();
  u64 first = ~u64{0};
  for (int b = 0; b < blocks; ++b) first = std::min(first, values[static_cast<std::size_t>(b) * 96 + 1]);
  for (int w = 0; w < 3; ++w) {
    fmt::print("  warp {}:", w == 0 ? 0 : w + 6);
    for (int n = 1; n < 13; ++n) {
      double sum = 0, most = 0, late = 0;
      for (int b = 0; b < blocks; ++b) {
        const u64* at = values.data() + (static_cast<std::size_t>(b) * 3 + static_cast<std::size_t>(w)) * 32;
        const double clocks = static_cast<double>(at[2 * n] - at[0]);
        sum += clocks / blocks;
        most = std::max(most, clocks);
        late = std::max(late, static_cast<double>(at[2 * n + 1]) - static_cast<double>(first));
      }
      fmt::print(" {}:{:.0f}/{:.0f}/{:.0f}ns", n, sum, most, late);
    }
    fmt::print("\n");
  }
}

Timing time_front(const Gpu& gpu, const Shape& shape, const Call& call) {
  Rig rig(gpu, shape, World::replay);
  auto inputs = rig.upload(call);
  cuda::DeviceMemory marks(gpu.context, 1 << 20);
  inputs.ranks[0].destination = marks.as<u16>();
  rig.fill_peers(call, inputs);
  rig.check(call, inputs);
  const std::size_t shard_bytes = static_cast<std::size_t>(shape.shard()) * shape.latent * 2;
  const std::size_t rows_bytes = static_cast<std::size_t>(call.batch) * shape.top_k * shape.latent * 2;
  cuda::DeviceMemory weights(gpu.context, shard_bytes * kLayers), rows(gpu.context, rows_bytes * kRowCopies);
  for (int i = 0; i < kLayers; ++i)
    gpu.stream->copy(weights.address() + i * shard_bytes, static_cast<const void*>(rig.shard(0)), shard_bytes);
  for (int i = 0; i < kRowCopies; ++i)
    gpu.stream->copy(rows.address() + i * rows_bytes, static_cast<const void*>(inputs.ranks[0].rows), rows_bytes);
  gpu.stream->synchronize();
  gpu.stream->begin_capture();
  for (int i = 0; i < kLayers; ++i)
    rig.launch(call, inputs, kernels::Kind::front, weights.as<u16>() + i * (shard_bytes / 2),
               rows.as<u16>() + static_cast<std::size_t>(i % kRowCopies) * (rows_bytes / 2));
  const cuda::Graph graph = gpu.stream->end_capture();
  const cuda::GraphExec exec(graph);
  exec.upload(*gpu.stream);
  const cuda::Event begin(gpu.context, cuda::Event::Timing::on), end(gpu.context, cuda::Event::Timing::on);
  std::vector<double> times;
  for (int i = 0; i < kReplays + 3; ++i) {
    gpu.stream->record(begin);
    exec.launch(*gpu.stream);
    gpu.stream->record(end);
    gpu.stream->synchronize();
    if (i >= 3) times.push_back(cuda::elapsed_us(begin, end, *gpu.context) / kLayers);
  }
  const bool faulted = rig.boxes().front().fault().has_value();
  require(!faulted, "fault during the replay");
  for (const auto& define : gpu.extra_defines)
    if (define.rfind("MOETAIL_MARKS", 0) == 0) print_marks(gpu, marks, 112);
  rig.take(0, call.batch);
  rig.check(call, inputs);
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front()};
}

}  // namespace

bool run_bench(Gpu& gpu, const std::vector<std::string>& words) {
  gpu.extra_defines.clear();
  for (const auto& word : words)
    if (word.rfind("-D", 0) == 0) gpu.extra_defines.push_back(word.substr(2));
  std::vector<int> batches;  // "B8" on the command line: that batch alone, at T = 8
  for (const auto& word : words)
    if (word.size() > 1 && word[0] == 'B') batches.push_back(std::stoi(word.substr(1)));
  bool fine = true;
  fmt::print("replay, us a layer (median of {}, least):\n", kReplays);
  for (const int ranks : {8, 16, 4, 2, 1})
    for (const int batch : {1, 2, 4, 8, 16, 32, 64, 128}) {
      if (ranks != 8 && batch != 1 && batch != 8) continue;
      if (!batches.empty() && (ranks != 8 || std::find(batches.begin(), batches.end(), batch) == batches.end())) continue;
      Shape shape;
      shape.ranks = ranks;
      Call call;
      call.batch = batch;
      call.put = kernels::PutBy::own;
      try {
        const Timing own = time_front(gpu, shape, call);
        call.put = kernels::PutBy::peers;
        const Timing peers = time_front(gpu, shape, call);
        fmt::print("T {:2} B {:3}: multicast put {:6.2f} ({:6.2f}), unicast put {:6.2f} ({:6.2f})\n", ranks, batch, own.median_us,
                   own.least_us, peers.median_us, peers.least_us);
      } catch (const std::exception& error) {
        fine = false;
        fmt::print("T {:2} B {:3}: no time, the check failed: {}\n", ranks, batch, error.what());
      }
      std::fflush(stdout);
    }
  return fine;
}

}  // namespace moetail::gpu
