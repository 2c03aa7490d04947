// SPDX-License-Identifier: Apache-2.0
// Graphs: captured at several batches and modes, replayed in odd and even numbers, mixed with eager calls on the same box. Every
// replay gives the eager calls' bits.
#include "tests/gpu/rig.hpp"

namespace moetail::gpu {
namespace {

constexpr int kLayers = 3;

/// One call a layer: its inputs, where its rows go, and the bits that an eager call gave.
struct Step {
  Call call;
  DeviceInputs inputs;
  std::vector<cuda::DeviceMemory> rows;
  std::vector<u16> expected;
};
struct Captured {
  std::vector<Step> steps;
  std::optional<cuda::GraphExec> exec;
};

void enqueue(Rig& rig, const Captured& graph) {
  for (const auto& step : graph.steps) {
    rig.enqueue(step.call, step.inputs);
    rig.consume(step.call, step.inputs, step.rows);
  }
}

void clear(const Gpu& gpu, const Captured& graph) {
  for (const auto& step : graph.steps)
    for (const auto& rows : step.rows) gpu.stream->fill(rows.address(), 0, rows.bytes() / 4);
  gpu.stream->synchronize();
}

void expect(Rig& rig, const Captured& graph, const std::string& what) {
  rig.synchronize();
  rig.require_no_fault();
  for (const auto& step : graph.steps)
    require(rig.equal_rows(step.rows, step.call.batch) == step.expected, "{}: B = {}, layer {}: other bits",
            what, step.call.batch, step.call.layer);
}

void graphs(const Gpu& gpu, World world, int ranks) {
  Rig rig(gpu, small_shape(ranks), world, 3, 0, kLayers);
  std::vector<Call> calls;
  for (const int batch : {1, 3, 16})
    for (const Mode mode : {Mode::front, Mode::publish}) {
      Call call;
      call.batch = batch;
      call.mode = mode;
      if (batch != 3 || mode == Mode::front) calls.push_back(call);
    }
  rig.warm_up(calls);
  std::vector<Captured> graphs(calls.size());
  for (std::size_t g = 0; g < graphs.size(); ++g) {
    for (int layer = 0; layer < kLayers; ++layer) {
      Call call = calls[g];
      call.layer = kLayers + layer;
      call.seed = 10 * g + static_cast<u64>(layer);
      auto inputs = rig.upload(call);
      auto expected = rig.check(call, inputs);
      graphs[g].steps.push_back(
          {call, std::move(inputs), rig.make_destinations(call.batch), std::move(expected)});
    }
    rig.stream(0).begin_capture();
    enqueue(rig, graphs[g]);
    graphs[g].exec.emplace(rig.stream(0).end_capture());
    graphs[g].exec->upload(rig.stream(0));
  }
  for (int round = 0; round < 2; ++round)
    for (std::size_t g = 0; g < graphs.size(); ++g) {
      const auto& graph = graphs[g];
      const auto& other = graphs[(g + 1 + static_cast<std::size_t>(round)) % graphs.size()];
      for (const int times : {1, 2, 5}) {
        clear(gpu, graph);
        for (int i = 0; i < times; ++i) graph.exec->launch(rig.stream(0));
        expect(rig, graph, fmt::format("graph {} replayed {} times", g, times));
      }
      // Eager, replay, eager, another graph: no look in between.
      clear(gpu, graph);
      clear(gpu, other);
      enqueue(rig, graph);
      other.exec->launch(rig.stream(0));
      enqueue(rig, other);
      graph.exec->launch(rig.stream(0));
      expect(rig, graph, "a replay after eager calls");
      expect(rig, other, "eager calls after a replay");
    }
}

}  // namespace

std::vector<Case> graph_cases() {
  return {{"graphs.loopback.t4", [](const Gpu& gpu) { graphs(gpu, World::loopback, 4); }},
          {"graphs.dependent.t1", [](const Gpu& gpu) { graphs(gpu, World::streams, 1); }}};
}

}  // namespace moetail::gpu
