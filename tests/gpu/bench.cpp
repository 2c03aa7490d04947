// SPDX-License-Identifier: Apache-2.0
// Timings of experiments on the kernels: with macros of their own (-DNAME=VALUE), clock marks (-DMOETAIL_MARKS=mask), and modes that the
// policy would not choose. 93 layers with weights of their own in one graph, launches chained by dependent launch, expert rows in L2, multicast
// put. What users get is timed by `moetail bench --engine cuda`.
#include <algorithm>
#include <map>
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

/// Clock marks of an experiment (-DMOETAIL_MARKS=mask) of the last three layers, in SM clocks since the first of them passed its
/// dependency wait on the same SM: mean over SMs.
void print_marks(const Gpu& gpu, const cuda::DeviceMemory& marks, int blocks) {
  constexpr std::size_t kLayerWords = (1 << 20) / 8;
  std::vector<u64> values(3 * kLayerWords);
  gpu.stream->copy(values.data(), marks.address(), values.size() * 8);
  gpu.stream->synchronize();
  std::map<u64, double> origin;
  for (int layer = 0; layer < 3; ++layer)
    for (int w = 0; w < 3; ++w) {
      fmt::print("  layer {} warp {}:", layer, w == 0 ? 0 : w + 6);
      for (int n = 0; n < 13; ++n) {
        double sum = 0, most = 0;
        int count = 0;
        for (int b = 0; b < blocks; ++b) {
          const u64* at = values.data() + layer * kLayerWords +
                          (static_cast<std::size_t>(b) * 3 + static_cast<std::size_t>(w)) * 32 + 2 * n;
          if (layer == 0 && w == 0 && n == 0) origin[at[5]] = static_cast<double>(at[4]);
          if (at[0] == 0 || origin.count(at[1]) == 0) continue;
          const double clocks = static_cast<double>(at[0]) - origin[at[1]];
          sum += clocks;
          most = std::max(most, clocks);
          ++count;
        }
        if (count > 0) fmt::print(" {}:{:.0f}/{:.0f}", n, sum / count, most);
      }
      fmt::print("\n");
    }
}

Timing time_call(const Gpu& gpu, const Shape& shape, const Call& call) {
  Rig rig(gpu, shape, World::replay);
  auto inputs = rig.upload(call);
  cuda::DeviceMemory marks(gpu.context, 3 << 20);
  gpu.stream->fill(marks.address(), 0, marks.bytes() / 4);
  inputs.ranks[0].destination = marks.as<u16>();
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
    inputs.ranks[0].destination = marks.as<u16>() + static_cast<std::size_t>(i % 3) * (1 << 19);
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
