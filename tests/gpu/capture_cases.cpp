// SPDX-License-Identifier: Apache-2.0
// Graph capture through the public door: what is not warm, or cannot be captured, is refused and leaves box and capture as they were; graphs
// replayed in odd and even numbers and mixed with eager calls give the eager calls' bits; and a fault in a replay, with launches behind it.
#include <chrono>
#include <functional>

#include "tests/gpu/door.hpp"

namespace moetail::gpu {
namespace {

using Clock = std::chrono::steady_clock;
using protocol::FaultKind;

struct Variant {
  Mode mode;
  int batch;
};
constexpr Variant kVariants[] = {
    {Mode::front, 1}, {Mode::front, 3}, {Mode::publish, 3}, {Mode::twoshot, 16}, {Mode::front_poll, 2}};

void expect_refused(const char* what, const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    require(error.code() == Code::call_order && std::string(error.what()).find("captur") != std::string::npos,
            "{} while capturing: another error: {}", what, error.what());
    return;
  }
  throw Failure(fmt::format("{} while capturing: not refused", what));
}

/// A call that is not warm leaves nothing behind: neither in the box, nor in the graph, nor in the capture.
void cold_call(const Gpu& gpu, Mode mode) {
  Door door(gpu, small_shape(4), ::moetail::World::virtual_ranks(4, on_cuda()));
  const auto rows = door.make_rows(3);
  const auto inputs = door.make_inputs(3, 5);
  const auto stream = door.native(0);
  stream.begin_capture();
  expect_refused(protocol::mode_name(mode), [&] { door.call(0, inputs, mode, rows); });
  require(stream.is_capturing(), "a refusal ended the capture");
  require(stream.end_capture().num_nodes() == 0, "a refused call left nodes in the graph");
  door.call(0, inputs, mode, rows);
  door.world.synchronize();
  door.judge(0, inputs, mode, door.read(rows, 3));
}

void refusals(const Gpu& gpu) {
  for (const Mode mode : {Mode::publish, Mode::twoshot}) cold_call(gpu, mode);
  Door door(gpu, small_shape(4), ::moetail::World::virtual_ranks(4, on_cuda()));
  const auto rows = door.make_rows(3);
  const auto inputs = door.make_inputs(3, 5);
  const auto stream = door.native(0);
  stream.begin_capture();
  expect_refused("front", [&] { door.call(0, inputs, Mode::front, rows); });
  expect_refused("launch", [&] { door.world.main_stream(0).launch([] {}); });
  expect_refused("World::synchronize", [&] { door.world.synchronize(); });
  expect_refused("Stream::synchronize", [&] { door.world.main_stream(1).synchronize(); });
  expect_refused("recover", [&] { door.world.recover(door.boxes); });
  expect_refused("make_boxes", [&] { door.world.make_boxes(door.shape()); });
  expect_refused("make_buffer", [&] { door.world.make_buffer(0, 16); });
  require(stream.is_capturing(), "a refusal ended the capture");
  require(stream.end_capture().num_nodes() == 0, "a refused call left nodes in the graph");
  door.world.recover(door.boxes);  // forgets the call that push had opened
  const auto targets = door.tail(0, 0).publish(3, Mode::publish);
  stream.begin_capture();
  expect_refused("publish_rows", [&] {
    publish_rows(targets, door.world.main_stream(0), {rows[0].as<u16>(), std::size_t{3} * 512});
  });
  require(stream.end_capture().num_nodes() == 0, "a refused call left nodes in the graph");
  door.world.recover(door.boxes);
  door.call(0, inputs, Mode::front, rows);
  door.world.synchronize();
  door.judge(0, inputs, Mode::front, door.read(rows, 3));
}

/// A step of all layers, and what it gave when it was run eagerly.
struct Step {
  Mode mode = Mode::front;
  DoorInputs inputs;
  std::vector<std::vector<cuda::DeviceMemory>> rows;  // [layer][rank]
  std::vector<std::vector<u16>> expected;             // [layer]
  std::optional<cuda::GraphExec> exec;
};

void enqueue(Door& door, const Step& step) {
  for (int layer = 0; layer < door.num_layers(); ++layer)
    door.call(layer, step.inputs, step.mode, step.rows[static_cast<std::size_t>(layer)]);
}

void clear(const Gpu& gpu, const Step& step) {
  for (const auto& ranks : step.rows)
    for (const auto& rows : ranks) gpu.stream->fill(rows.address(), 0, rows.bytes() / 4);
  gpu.stream->synchronize();
}

void expect(Door& door, const Step& step, const std::string& what) {
  door.world.synchronize();
  for (std::size_t layer = 0; layer < step.rows.size(); ++layer)
    require(door.read(step.rows[layer], step.inputs.batch) == step.expected[layer],
            "{}: {} B = {}, layer {}: other bits", what, protocol::mode_name(step.mode), step.inputs.batch,
            layer);
}

void capture(Door& door, Step& step) {
  const auto stream = door.native(0);
  stream.begin_capture();
  enqueue(door, step);
  step.exec.emplace(stream.end_capture());
  step.exec->upload(stream);
}

void replays(Door door, std::initializer_list<Variant> variants) {
  const Gpu& gpu = door.gpu();
  const auto stream = door.native(0);
  std::vector<Step> steps;
  for (const auto& [mode, batch] : variants) {
    Step& step = steps.emplace_back();
    step.mode = mode;
    step.inputs = door.make_inputs(batch, 30 + steps.size());
    if (door.is_replay()) door.fill_peers(step.inputs, mode);
    for (int layer = 0; layer < door.num_layers(); ++layer) step.rows.push_back(door.make_rows(batch));
    enqueue(door, step);
    door.world.synchronize();
    for (int layer = 0; layer < door.num_layers(); ++layer) {
      step.expected.push_back(door.read(step.rows[static_cast<std::size_t>(layer)], batch));
      door.judge(layer, step.inputs, mode, step.expected.back());
    }
    capture(door, step);
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    const Step& other = steps[(i + 1) % steps.size()];
    for (const int times : {1, 2, 5}) {
      clear(gpu, step);
      for (int n = 0; n < times; ++n) step.exec->launch(stream);
      expect(door, step, fmt::format("{} replays", times));
    }
    // Eager, replay, eager, another graph: no look in between.
    clear(gpu, step);
    clear(gpu, other);
    enqueue(door, step);
    other.exec->launch(stream);
    enqueue(door, other);
    step.exec->launch(stream);
    expect(door, step, "a replay after eager calls");
    expect(door, other, "eager calls after a replay");
  }
}

void loopback(const Gpu& gpu) {
  // On the caller's own stream.
  const cuda::Stream own(gpu.context);
  WorldOptions options = on_cuda();
  options.cuda_stream = own.handle();
  replays({gpu, small_shape(4), ::moetail::World::virtual_ranks(4, options), 3},
          {kVariants[0], kVariants[1], kVariants[2], kVariants[3], kVariants[4]});
}

void alone(const Gpu& gpu) {
  replays({gpu, small_shape(1), ::moetail::World::single(on_cuda()), 3},
          {kVariants[0], kVariants[1], kVariants[2], kVariants[3], kVariants[4]});
}

/// One batch and mode a fill.
void replayed_rank(const Gpu& gpu) {
  for (const Variant variant : kVariants)
    replays({gpu, small_shape(8), ::moetail::World::replay(3, 8), 3}, {variant});
}

/// A map that went bad between two replays: one rank names the entry, the others name that rank, 92 layers of launches behind the fault
/// return at once, rows are NaN, and after recovery the same graph gives the same bits again.
void fault_in_replay(const Gpu& gpu) {
  constexpr int kLayers = 92;
  Door door(gpu, small_shape(4), ::moetail::World::virtual_ranks(4, on_cuda()), kLayers);
  const auto stream = door.native(0);
  const auto inputs = door.make_inputs(2, 9, true);
  std::vector<std::vector<cuda::DeviceMemory>> rows;
  for (int layer = 0; layer < kLayers; ++layer) rows.push_back(door.make_rows(2));
  const auto step = [&] {
    for (int layer = 0; layer < kLayers; ++layer)
      door.call(layer, inputs, Mode::front, rows[static_cast<std::size_t>(layer)], Form::permuted);
  };
  step();
  door.world.synchronize();
  const auto first = door.read(rows.front(), 2), last = door.read(rows.back(), 2);
  door.judge(kLayers - 1, inputs, Mode::front, last);
  stream.begin_capture();
  step();
  const cuda::GraphExec exec(stream.end_capture());
  exec.upload(stream);

  const auto good = inputs.host.arrays[1].map;
  auto bad = good;
  bad[17] = 1 << 20;
  gpu.stream->copy(inputs.map[1].address(), bad.data(), bad.size() * 4);
  gpu.stream->synchronize();
  const auto begin = Clock::now();
  exec.launch(stream);
  stream.synchronize();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  require(seconds < 0.25, "a graph of {} layers on a poisoned box took {:.3f} s", kLayers, seconds);
  for (const auto& box : door.boxes) {
    const auto fault = box.status();
    require(fault.has_value(), "rank {} has no fault after the replay", box.rank());
    const auto& record = fault->record;
    if (box.rank() == 1)
      require(record.kind == FaultKind::map_index && record.token == 1 && record.k == 1 &&
                  record.layer == 1 && record.seen == 1u << 20,
              "rank 1: {}", fault->text());
    else
      require(record.kind == FaultKind::poisoned && record.peer == 1, "rank {}: {}", box.rank(),
              fault->text());
  }
  fmt::print("  {}; {} layers in {:.1f} ms\n", door.boxes[1].status()->text(), kLayers, 1e3 * seconds);
  const auto nan = door.read(rows.back(), 2);
  for (const u16 value : nan)
    require((value & 0x7FFF) > 0x7F80, "a row of a faulted box is no NaN: {:#x}", value);
  bool refused = false;
  try {
    step();
  } catch (const Error& error) {
    refused = error.code() == Code::fault;
  }
  require(refused, "a call on a faulted box was not refused");
  gpu.stream->copy(inputs.map[1].address(), good.data(), good.size() * 4);
  gpu.stream->synchronize();
  door.world.recover(door.boxes);
  for (int times : {1, 2}) {
    for (int i = 0; i < times; ++i) exec.launch(stream);
    door.world.synchronize();
    require(door.read(rows.front(), 2) == first && door.read(rows.back(), 2) == last,
            "{} replays after the recovery: other bits", times);
  }
}

}  // namespace

std::vector<Case> capture_cases() {
  return {{"capture.refusals", refusals},
          {"capture.loopback.t4", loopback},
          {"capture.t1", alone},
          {"capture.replay.t8", replayed_rank},
          {"capture.fault.t4", fault_in_replay}};
}

}  // namespace moetail::gpu
