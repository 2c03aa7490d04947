// SPDX-License-Identifier: Apache-2.0
// Many calls. `stress`: 10,000 in loopback that the host enqueues without a look in between, two boxes in turns, random batches, modes and
// layers. `soak`: 100,000 over loopback and over ranks on streams of their own, with random stalls, every output bit of every rank compared.
#include <algorithm>
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
    call.one_launch = true;
    calls.push_back(call);
    call.one_launch = false;
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
  fmt::print("  tried {}: calls\n", kCalls);
}

/// A call with its inputs and the rows that it has to give, which the oracle has seen.
struct Known {
  Call call;
  DeviceInputs inputs;
  std::vector<u16> rows;
};

std::vector<Known> known_calls(Rig& rig) {
  auto calls = variants();
  rig.warm_up(calls);
  std::vector<Known> known;
  for (int layer = 0; layer < kLayers; ++layer)
    for (auto call : calls) {
      call.layer = kLayers + layer;
      call.seed = 500 + known.size();
      auto inputs = rig.upload(call);
      auto rows = rig.check(call, inputs);
      known.push_back({call, std::move(inputs), std::move(rows)});
    }
  return known;
}

/// A rank, a site of any kind, all of its blocks or one; or none, in seven calls of eight.
Stall random_stall(std::mt19937& random, int ranks) {
  if (random() % 8 != 0) return {};
  constexpr int kBlocks[] = {-1, 0, 5};
  return {static_cast<int>(random() % static_cast<unsigned>(ranks)),
          static_cast<protocol::Site>(1 + random() % (protocol::kSites - 1)), kBlocks[random() % 3]};
}

/// Calls that were made, and those of them that gave other bits.
struct Soaked {
  int calls = 0, lost = 0, stalled = 0;
};

Soaked soak(Rig& rig, const std::vector<Known>& known, int calls) {
  constexpr int kWindow = 250;  // calls between two looks of the host
  std::vector<std::vector<cuda::DeviceMemory>> rows;
  for (int i = 0; i < kWindow; ++i) rows.push_back(rig.make_destinations(std::ranges::max(kBatches)));
  std::mt19937 random(static_cast<unsigned>(rig.shape().ranks));
  Soaked done;
  while (done.calls < calls) {
    std::vector<const Known*> made;
    for (const auto& destinations : rows) {
      made.push_back(&known[random() % known.size()]);
      rig.stall = random_stall(random, rig.shape().ranks);
      done.stalled += rig.stall.rank >= 0 ? 1 : 0;
      rig.enqueue(made.back()->call, made.back()->inputs);
      rig.consume(made.back()->call, made.back()->inputs, destinations);
    }
    rig.synchronize();
    rig.require_no_fault();
    for (std::size_t i = 0; i < made.size(); ++i)
      done.lost += rig.equal_rows(rows[i], made[i]->call.batch) == made[i]->rows ? 0 : 1;
    done.calls += kWindow;
  }
  rig.stall = {};
  return done;
}

void soak(const Gpu& gpu, World world, int ranks) {
  constexpr int kSoakCalls = 50'000;
  Rig rig(gpu, small_shape(ranks), world, 20, 0, kLayers);
  rig.defines = {"MOETAIL_STALL_NS=50000"};
  auto known = known_calls(rig);
  const auto done = soak(rig, known, few_calls ? kSoakCalls / 100 : kSoakCalls);
  fmt::print("  tried {}: calls, {} of them stalled, {} lost\n", done.calls, done.stalled, done.lost);
  require(done.lost == 0, "{} of {} calls gave other bits", done.lost, done.calls);
  // The control: a call whose rank 1 has another routed row is lost, each time.
  auto& spoilt = known.front();
  auto call = spoilt.call;
  call.seed += 1000;
  auto inputs = rig.upload(call);
  spoilt.inputs.ranks[1].rows = inputs.ranks[1].rows;
  known.resize(1);
  const auto other = soak(rig, known, 1);
  require(other.lost == other.calls, "{} of {} calls with another input were not seen to be lost",
          other.calls - other.lost, other.calls);
}

}  // namespace

std::vector<Case> stress_cases() {
  return {{"stress.t4", [](const Gpu& gpu) { stress(gpu, 4); }},
          {"stress.t8", [](const Gpu& gpu) { stress(gpu, 8); }},
          {"soak.loopback.t4", [](const Gpu& gpu) { soak(gpu, World::loopback, 4); }},
          {"soak.streams.t2", [](const Gpu& gpu) { soak(gpu, World::streams, 2); }}};
}

}  // namespace moetail::gpu
