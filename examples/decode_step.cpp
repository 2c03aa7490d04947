// SPDX-License-Identifier: Apache-2.0
// One decode step of a toy engine on four tensor-parallel ranks, through the C++ door. The engine runs its own experts;
// moetail does what lies between their rows and the next layer's input. docs/integration.md explains each call.
#include <bit>
#include <cstdio>
#include <moetail/moetail.hpp>
#include <vector>

using Array = std::vector<moetail::Bf16>;
constexpr int kRanks = 4, kHidden = 256, kLatent = 128, kTopK = 4, kBatch = 2, kLayers = 4;

float value_of(moetail::Bf16 bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}
moetail::Bf16 bits_of(float value) {
  return std::bit_cast<std::uint32_t>(value) >> 16 & 0xFFFF;
}

Array some_values(int count, float scale) {
  Array values;
  for (int i = 0; i < count; ++i) values.push_back(bits_of(scale * static_cast<float>(i % 101 - 50)));
  return values;
}

struct Rank {
  Array hidden = some_values(kBatch * kHidden, 0.02f);                        // [B, H], layer to layer
  Array rows = Array(kBatch * kTopK * kLatent);                               // the routed experts' rows
  std::vector<float> weights = std::vector<float>(kBatch * kTopK, 1 / 4.0f);  // the router's weights
  Array shared = Array(kBatch * kHidden);                                     // the shared experts' partial

  // Stands for the engine's own kernels: whatever they compute, they leave it in `rows` and `shared`.
  void run_experts(int rank) {
    for (int i = 0; i < kBatch * kTopK * kLatent; ++i) {
      const int route = i / kLatent, token = route / kTopK, column = i % kLatent;
      rows[i] = bits_of(value_of(hidden[token * kHidden + column]) * static_cast<float>(route + rank + 1));
    }
    for (int i = 0; i < kBatch * kHidden; ++i) shared[i] = bits_of(value_of(hidden[i]) / 8);
  }
};

int main() try {
  const Array norm(kLatent, bits_of(1.0f)), up_proj = some_values(kLayers * kHidden * kLatent, 0.002f);
  std::vector<Rank> ranks(kRanks);

  // Once: the ranks, one set of mailboxes for all layers, and each layer's tail on each rank.
  const moetail::Shape shape{
      .hidden = kHidden, .latent = kLatent, .ranks = kRanks, .top_k = kTopK, .capacity = 16};
  const auto world = moetail::World::virtual_ranks(kRanks);
  const auto boxes = world.make_boxes(shape);
  std::vector<moetail::PreparedTail> tails;  // [layer][rank]
  for (int i = 0; i < kLayers * kRanks; ++i) {
    const auto matrix = std::span(up_proj).subspan(i / kRanks * kHidden * kLatent, kHidden * kLatent);
    const auto weights = moetail::TailWeights::from_full(shape, i % kRanks, matrix, norm);
    tails.emplace_back(boxes[i % kRanks], weights, i / kRanks + 1);
  }

  // Each step: everything is enqueued on the ranks' streams, and only the end waits.
  for (int layer = 0; layer < kLayers; ++layer) {
    std::vector<moetail::RankCall> calls(kRanks);
    for (int r = 0; r < kRanks; ++r) {
      world.main_stream(r).launch([&rank = ranks[r], r] { rank.run_experts(r); });
      calls[r].tail = &tails[layer * kRanks + r];
      calls[r].tail->push(ranks[r].shared, kBatch);
      calls[r].call.batch = kBatch;
      calls[r].call.routed = moetail::Routed::expanded(ranks[r].rows, ranks[r].weights);
      calls[r].call.residual = ranks[r].hidden;
    }
    const auto views = world.run(calls);
    for (int r = 0; r < kRanks; ++r) boxes[r].take(views[r], ranks[r].hidden);
  }
  world.synchronize();
  for (const Rank& rank : ranks)
    if (rank.hidden != ranks[0].hidden) return std::puts("the ranks disagree"), 1;
  std::printf("%d layers, %d ranks: hidden[0] = %g on every rank\n", kLayers, kRanks,
              static_cast<double>(value_of(ranks[0].hidden[0])));
} catch (const moetail::Error& error) {
  std::fprintf(stderr, "decode_step: %s\n", error.what());
  return 1;
}
