// SPDX-License-Identifier: Apache-2.0
// 10,000 calls in loopback that the host enqueues without a look in between: two boxes in turns, random batches, modes and layers.
#include <random>

#include "tests/gpu/rig.hpp"

namespace moetail::gpu {
namespace {

constexpr int kCalls = 10'000;
constexpr int kCheckEvery = 1'000;
constexpr int kBoxes = 2;
constexpr int kLayers = 3;
constexpr int kBatches[] = {1, 3, 16};

std::vector<Call> variants() {
  std::vector<Call> calls;
  for (const int batch : kBatches) {
    Call call;
    call.batch = batch;
    calls.push_back(call);
    call.shares_reduced = true;
    calls.push_back(call);
    call.mode = Mode::publish;
    call.pushes = false;
    calls.push_back(call);
    call.shares_reduced = false;
    call.pushes = true;
    calls.push_back(call);
    call.mode = Mode::twoshot;
    calls.push_back(call);
    call.mode = Mode::front_poll;
    calls.push_back(call);
  }
  return calls;
}

struct Box {
  std::unique_ptr<Rig> rig;
  std::vector<DeviceInputs> inputs;  // [layer][batch]
  std::vector<cuda::DeviceMemory> unchecked;
};

struct Checked {
  Box* box;
  Call call;
  const DeviceInputs* inputs;
  std::vector<cuda::DeviceMemory> rows;
};

void stress(const Gpu& gpu, int ranks) {
  const auto calls = variants();
  std::vector<Box> boxes(kBoxes);
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    auto& box = boxes[i];
    box.rig = std::make_unique<Rig>(gpu, small_shape(ranks), World::loopback, 10 + i, 0, kLayers);
    for (int layer = 0; layer < kLayers; ++layer)
      for (const int batch : kBatches) {
        Call call;
        call.batch = batch;
        call.layer = kLayers + layer;  // a label of its own, the layer's weights
        call.seed = 100 * i + box.inputs.size();
        box.inputs.push_back(box.rig->upload(call));
      }
    box.unchecked = box.rig->make_destinations(small_shape(ranks).capacity);
  }
  boxes[0].rig->warm_up(calls);
  std::vector<Checked> checked;
  for (int i = 0; i < kCalls / kCheckEvery; ++i)
    checked.push_back({nullptr, {}, nullptr, boxes[0].rig->make_destinations(small_shape(ranks).capacity)});
  std::mt19937 random(static_cast<unsigned>(ranks));
  for (int i = 0; i < kCalls; ++i) {
    auto& box = boxes[random() % kBoxes];
    const std::size_t which = random() % calls.size(), layer = random() % kLayers;
    Call call = calls[which];
    call.layer = kLayers + static_cast<int>(layer);
    const auto& inputs = box.inputs[layer * std::size(kBatches) + which * std::size(kBatches) / calls.size()];
    box.rig->enqueue(call, inputs);
    if ((i + 1) % kCheckEvery == 0) {
      auto& check = checked[static_cast<std::size_t>(i / kCheckEvery)];
      check.box = &box;
      check.call = call;
      check.inputs = &inputs;
      box.rig->consume(call, inputs, check.rows);
    } else {
      box.rig->consume(call, inputs, box.unchecked);
    }
  }
  gpu.stream->synchronize();
  for (const auto& box : boxes) box.rig->require_no_fault();
  for (const auto& check : checked)
    check.box->rig->judge(check.call, *check.inputs,
                          check.box->rig->equal_rows(check.rows, check.call.batch));
}

}  // namespace

std::vector<Case> stress_cases() {
  return {{"stress.t4", [](const Gpu& gpu) { stress(gpu, 4); }},
          {"stress.t8", [](const Gpu& gpu) { stress(gpu, 8); }}};
}

}  // namespace moetail::gpu
