// SPDX-License-Identifier: Apache-2.0
// An early wave: it starts, re-arms and polls while the kernel in front of it, which triggers at once and publishes late, still runs. The
// producer publishes only once it has seen the wave's re-arm, so that the case shows that the wave did start; without `early` it sees none.
#include "tests/gpu/door.hpp"
#include "verify/exact.hpp"

namespace moetail::gpu {
namespace {

constexpr u64 kPatienceNs = 20'000'000;

// Passes its own dependency wait, triggers, waits for the wave, and then publishes rows [B, L] that are finalized.
constexpr const char* kProducer = R"(
#include "moetail/device/publish.cuh"
namespace dev = moetail::device;
extern "C" __global__ void early_producer(const __grid_constant__ moetail::PublishTargets targets, const dev::u16* rows,
                                          unsigned* seen, unsigned long patience_ns) {
  dev::wait_for_predecessor();
  dev::trigger_dependents();
  const auto& box = targets.box;
  // The wave re-arms the header that the previous call left in its slot.
  const int slot = moetail::protocol::rearm_slot_of(dev::load_epoch(box));
  const dev::u32* header = box.mine<dev::u32>(moetail::protocol::Region::header, slot, box.rank, 0);
  const dev::u64 begin = dev::global_time_ns();
  bool is_armed = false;
  do is_armed = moetail::protocol::is_empty(dev::load_relaxed_sys(header));
  while (!is_armed && dev::global_time_ns() - begin < patience_ns);
  if (threadIdx.x == 0) *seen = is_armed ? 1 : 0;
  const dev::Publisher partial(targets);
  for (int token = 0; token < partial.batch(); ++token)
    partial.put_row(token, rows + token * partial.lines() * 8, dev::Threads::of_block());
})";

void early(Door door) {
  const Gpu& gpu = door.gpu();
  const cuda::DeviceMemory seen(gpu.context, 4);
  for (const Mode mode : {Mode::publish, Mode::twoshot})
    for (const int batch : {1, 6}) {
      const auto inputs = door.make_inputs(batch, 80 + static_cast<u64>(batch));
      door.world.recover(door.boxes);
      if (door.is_replay()) door.fill_peers(inputs, mode);
      verify::Problem problem{door.shape(),
                              batch,
                              false,
                              inputs.host.ranks,
                              inputs.host.ranks[0].shared,
                              inputs.host.ranks[0].shared};
      const auto partial = verify::exact_partial(problem, door.group_rank(0));
      const cuda::DeviceMemory rows(gpu.context, partial.size() * 2);
      gpu.stream->copy(rows.address(), partial.data(), rows.bytes());
      gpu.stream->synchronize();
      for (int i = 0; i < 6; ++i) {
        const bool is_early = i % 3 != 2;
        const auto stream = door.native(0);
        PreparedTail& tail = door.tail(0, 0);
        ::moetail::Call call;
        call.batch = batch;
        call.mode = mode;
        call.routed = Routed::published();
        call.early = is_early;
        door.boxes[0].warm_up(batch, mode, Form::published, WeightType::bf16, false, is_early);
        const auto taken = door.make_rows(batch);
        tail.push(door.shared(inputs, 0), batch, mode);
        launch_user(gpu, stream, kProducer, "early_producer", 1, true, {}, tail.publish(batch, mode),
                    rows.as<const u16>(), seen.as<unsigned>(), kPatienceNs);
        const auto view = tail.run(call);
        door.boxes[0].take(view, {taken[0].as<u16>(), taken[0].bytes() / 2});
        door.world.synchronize();
        const auto where = fmt::format("{} B = {} call {}", protocol::mode_name(mode), batch, i);
        door.judge(0, inputs, mode, door.read(taken, batch));
        unsigned started = 2;
        gpu.stream->copy(&started, seen.address(), 4);
        gpu.stream->synchronize();
        // The first call has no previous one: its slot is armed from the start.
        const unsigned expected = i == 0 || is_early ? 1 : 0;
        require(started == expected, "{}: the wave had {}started before its producer published", where,
                started == 1 ? "" : "not ");
      }
    }
}

}  // namespace

std::vector<Case> early_cases() {
  return {{"early.t1",
           [](const Gpu& gpu) {
             early({gpu, small_shape(1), ::moetail::World::single(on_cuda())});
           }},
          {"early.replay.t8", [](const Gpu& gpu) {
             early({gpu, small_shape(8), ::moetail::World::replay(5, 8)});
           }}};
}

}  // namespace moetail::gpu
