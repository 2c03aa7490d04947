// SPDX-License-Identifier: Apache-2.0
// Dependent launch, which loopback has not: a predecessor that lets the tail start at once and writes its rows late, and tails whose
// successors start at once. At T = 1 and in replay.
#include "tests/gpu/rig.hpp"

namespace moetail::gpu {
namespace {

constexpr u64 kLate = 500'000;

/// The expert rows of rank `rank` moved aside: the place itself holds other numbers.
struct LateRows {
  cuda::DeviceMemory kept;
  void* place;
  std::size_t bytes;

  LateRows(const Gpu& gpu, const DeviceInputs& inputs, std::size_t rank)
      : kept(gpu.context, inputs.host.arrays[rank].rows.size() * 2),
        place(const_cast<u16*>(inputs.ranks[rank].rows)),
        bytes(inputs.host.arrays[rank].rows.size() * 2) {
    gpu.stream->copy(kept.address(), static_cast<const void*>(place), bytes);
  }
  void spoil(const Gpu& gpu) const {
    gpu.stream->fill(reinterpret_cast<cuda::abi::DevicePtr>(place), 0x3F803F80u, bytes / 4);
    gpu.stream->synchronize();
  }
  void write_late(const Gpu& gpu, const cuda::Stream& stream) const {
    launch_late_writer(gpu, stream, place, kept.as<u8>(), bytes, kLate);
  }
};

void late_predecessor(const Gpu& gpu, World world, int ranks, int replay_rank) {
  for (const Mode mode : {Mode::front, Mode::publish, Mode::front_poll})
    for (const int batch : {1, 8}) {
      Rig rig(gpu, small_shape(ranks), world, 1, replay_rank);
      Call call;
      call.batch = batch;
      call.mode = mode;
      call.seed = static_cast<u64>(batch);
      if (world == World::replay) call.put = kernels::PutBy::own;
      rig.warm_up({call});
      const auto inputs = rig.upload(call);
      if (world == World::replay) rig.fill_peers(call, inputs);
      const auto rank = static_cast<std::size_t>(replay_rank);
      const LateRows late(gpu, inputs, rank);
      for (int i = 0; i < 3; ++i) {
        late.spoil(gpu);
        late.write_late(gpu, rig.stream(0));
        try {
          rig.check(call, inputs);
        } catch (const Failure& failure) {
          throw Failure(
              fmt::format("{} B = {} call {}: {}", protocol::mode_name(mode), batch, i, failure.what()));
        }
      }
    }
}

// Each tail and each consumer starts while the one before it runs, on inputs and rows of its own.
void successor_t1(const Gpu& gpu) {
  for (const int trigger : {0, 1, 3, 4}) {
    Rig rig(gpu, small_shape(1), World::streams);
    std::vector<Call> calls;
    for (int i = 0; i < 6; ++i) {
      Call call;
      call.batch = i % 3 == 0 ? 8 : 1;
      call.seed = 70 + static_cast<u64>(i);
      call.choice.trigger = trigger;
      calls.push_back(call);
    }
    rig.warm_up(calls);
    std::vector<DeviceInputs> inputs;
    std::vector<std::vector<u16>> expected;
    for (const auto& call : calls) {
      inputs.push_back(rig.upload(call));
      expected.push_back(rig.check(call, inputs.back()));
    }
    constexpr std::size_t kChain = 60;
    std::vector<std::vector<cuda::DeviceMemory>> rows;
    for (std::size_t i = 0; i < kChain; ++i) rows.push_back(rig.make_destinations(calls[i % 6].batch));
    for (std::size_t i = 0; i < kChain; ++i) {
      rig.enqueue(calls[i % 6], inputs[i % 6]);
      rig.consume(calls[i % 6], inputs[i % 6], rows[i]);
    }
    rig.synchronize();
    rig.require_no_fault();
    for (std::size_t i = 0; i < kChain; ++i)
      require(rig.equal_rows(rows[i], calls[i % 6].batch) == expected[i % 6],
              "trigger {}, call {}: other bits", trigger, i);
  }
}

// Tails alone, one behind the other: all but the last with other rows.
void successor_replay(const Gpu& gpu) {
  for (const int trigger : {0, 1, 3, 4})
    for (const int batch : {1, 8}) {
      Rig rig(gpu, small_shape(8), World::replay, 1, 5);
      Call call;
      call.batch = batch;
      call.choice.trigger = trigger;
      call.put = kernels::PutBy::own;
      const auto inputs = rig.upload(call);
      rig.fill_peers(call, inputs);
      const LateRows late(gpu, inputs, 5);
      const cuda::DeviceMemory others(gpu.context, late.bytes);
      gpu.stream->fill(others.address(), 0x3F803F80u, late.bytes / 4);
      for (int length : {1, 2, 3, 50}) {
        for (int i = 0; i < length; ++i) rig.enqueue(call, inputs, nullptr, others.as<u16>());
        rig.check(call, inputs);
      }
    }
}

}  // namespace

std::vector<Case> dependent_cases() {
  return {
      {"dependent.late_predecessor.t1", [](const Gpu& gpu) { late_predecessor(gpu, World::streams, 1, 0); }},
      {"dependent.late_predecessor.replay",
       [](const Gpu& gpu) { late_predecessor(gpu, World::replay, 8, 3); }},
      {"dependent.successor.t1", successor_t1},
      {"dependent.successor.replay", successor_replay}};
}

}  // namespace moetail::gpu
