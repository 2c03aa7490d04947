// SPDX-License-Identifier: Apache-2.0
// Timings of experiments on the kernels: with macros of their own (-DNAME=VALUE), and modes that the policy would not choose. 93 layers with weights of their own in one graph, launches chained by dependent launch, expert rows in L2, multicast
// put. What users get is timed by `moetail bench --engine cuda`.
#include <algorithm>
#include <string>

#include "tests/gpu/rig.hpp"

namespace moetail::gpu {
namespace {

constexpr int kLayers = 93;
constexpr int kReplays = 20;
// Copies of the expert rows that layers take in turns. Two: what lies between two uses of a copy, the weights of two layers, stays
// far below the L2, where an expert kernel has just written its rows.
constexpr int kRowCopies = 2;

struct Timing {
  double median_us = 0, least_us = 0;
};

Timing time_call(const Gpu& gpu, const Shape& shape, const Call& call) {
  Rig rig(gpu, shape, World::replay);
  const auto inputs = rig.upload(call);
  rig.fill_peers(call, inputs);
  rig.check(call, inputs);
  const std::size_t shard_bytes = static_cast<std::size_t>(shape.shard()) * shape.latent * 2;
  const std::size_t rows_bytes = static_cast<std::size_t>(call.batch) * shape.top_k * shape.latent * 2;
  cuda::DeviceMemory weights(gpu.context, shard_bytes * kLayers),
      rows(gpu.context, rows_bytes * static_cast<std::size_t>(kRowCopies));
  for (int i = 0; i < kLayers; ++i)
    gpu.stream->copy(weights.address() + i * shard_bytes, static_cast<const void*>(rig.shard(0)),
                     shard_bytes);
  for (int i = 0; i < kRowCopies; ++i)
    gpu.stream->copy(rows.address() + i * rows_bytes, static_cast<const void*>(inputs.ranks[0].rows),
                     rows_bytes);
  gpu.stream->synchronize();
  gpu.stream->begin_capture();
  for (int i = 0; i < kLayers; ++i) {
    rig.enqueue(call, inputs, weights.as<u16>() + i * (shard_bytes / 2),
                rows.as<u16>() + static_cast<std::size_t>(i % kRowCopies) * (rows_bytes / 2));
  }
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
      if (!batches.empty() &&
          (ranks != 8 || std::find(batches.begin(), batches.end(), batch) == batches.end()))
        continue;
      Shape shape;
      shape.ranks = ranks;
      Call call;
      call.batch = batch;
      call.put = kernels::PutBy::own;
      try {
        // "publish", "share" (publish with sharing), "twoshot" or "fshare" (front with sharing) instead of front.
        for (const auto& word : words) {
          if (word == "publish" || word == "share") call.mode = Mode::publish;
          if (word == "twoshot") call.mode = Mode::twoshot;
          if (word == "share" || word == "fshare") call.shares_reduced = true;
        }
        const Timing time = time_call(gpu, shape, call);
        fmt::print("T {:2} B {:3}: {:6.2f} ({:6.2f})\n", ranks, batch, time.median_us, time.least_us);
      } catch (const std::exception& error) {
        fine = false;
        fmt::print("T {:2} B {:3}: no time, the check failed: {}\n", ranks, batch, error.what());
      }
      std::fflush(stdout);
    }
  return fine;
}

}  // namespace moetail::gpu
