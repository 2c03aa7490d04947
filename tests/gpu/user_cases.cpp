// SPDX-License-Identifier: Apache-2.0
// A user's own kernels (examples/decode_kernels.cu) around tails of the public door: they publish or fill, the tail runs, they take the rows
// and re-arm them. And their negative controls: one that does not clean the sentinel, one that does not re-arm.
#include "protocol/sentinel.hpp"
#include "tests/gpu/door.hpp"

namespace moetail::gpu {
namespace {

using protocol::Site;
using Defines = std::vector<std::string>;

constexpr unsigned kGrid = 24;

/// One call whose producer and consumer are the user's kernels. `hidden`: what they add the rows to.
void user_call(Door& door, const DoorInputs& inputs, Mode mode,
               const std::vector<cuda::DeviceMemory>& hidden) {
  const Gpu& gpu = door.gpu();
  const bool alone = door.num_ranks() == 1;
  const int top_k = door.shape().top_k;
  std::vector<RankCall> calls;
  for (int rank = 0; rank < door.num_ranks(); ++rank) {
    PreparedTail& tail = door.tail(0, rank);
    const auto stream = door.native(rank);
    const Routed routed = door.routed(inputs, rank, Form::expanded);
    const u16* rows = routed.rows.data();
    const float* weights = routed.weights_fp32.data();
    ::moetail::Call call;
    call.batch = inputs.batch;
    call.mode = mode;
    call.routed = Routed::published();
    if (mode == Mode::front_poll) {
      const auto slots = tail.poll_slots(inputs.batch, mode);
      require(slots.has_value(), "front_poll gives no slots");
      launch_user(gpu, stream, example_kernels(), "engine_fill", kGrid, alone, {}, *slots, rows, weights,
                  door.shared(inputs, rank).data(), top_k);
    } else {
      tail.push(door.shared(inputs, rank), inputs.batch, mode, door.world.side_stream(door.group_rank(rank)));
      launch_user(gpu, stream, example_kernels(), "engine_publish", kGrid, alone, {},
                  tail.publish(inputs.batch, mode), reinterpret_cast<const protocol::Line*>(rows), weights,
                  top_k);
    }
    calls.push_back({&tail, call});
  }
  const auto views = door.world.run(calls);
  for (int rank = 0; rank < door.num_ranks(); ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    launch_user(gpu, door.native(rank), example_kernels(), "engine_add_output", kGrid, alone, {},
                door.boxes[index].consumer(views[index]), hidden[index].as<protocol::Line>());
  }
}

void user_kernels(Door door) {
  std::uint64_t seed = 1;
  for (const Mode mode : {Mode::publish, Mode::twoshot, Mode::front_poll})
    for (const int batch : {1, 5, 16}) {
      const auto inputs = door.make_inputs(batch, seed++, mode == Mode::front_poll);
      if (door.is_replay()) {
        door.world.recover(door.boxes);
        door.fill_peers(inputs, mode);
      }
      std::vector<u16> first;
      for (int i = 0; i < 5; ++i) {  // every slot, and two that were re-armed
        const auto hidden = door.make_rows(batch);
        user_call(door, inputs, mode, hidden);
        try {
          door.world.synchronize();
          const auto rows = door.read(hidden, batch);
          door.judge(0, inputs, mode, rows);
          door.require_armed(batch);
          if (i == 0) first = rows;
          require(rows == first, "other bits than the first call");
        } catch (const std::exception& error) {
          throw Failure(
              fmt::format("{} B = {} call {}: {}", protocol::mode_name(mode), batch, i, error.what()));
        }
      }
      // The library's own producers and consumer on the same box, in between: the same bits.
      const auto taken = door.make_rows(batch);
      door.call(0, inputs, mode, taken, Form::permuted);
      door.world.synchronize();
      require(door.read(taken, batch) == first || mode == Mode::publish || mode == Mode::twoshot,
              "{} B = {}: the library's producers give other bits", protocol::mode_name(mode), batch);
      door.judge(0, inputs, mode, door.read(taken, batch));
    }
}

/// A partial that holds the sentinel word, published by the device header's put_line built with `defines`. Returns rank 1's fault, if any.
std::optional<FaultReport> publish_sentinel(const Gpu& gpu, const Defines& defines) {
  WorldOptions options = on_cuda();
  options.deadline = options.first_deadline = std::chrono::milliseconds(300);
  Door door(gpu, small_shape(2), ::moetail::World::virtual_ranks(2, options));
  const auto inputs = door.make_inputs(2, 7);
  std::vector<u16> partial(2 * static_cast<std::size_t>(door.shape().latent), 0x3F80);
  const std::size_t spoilt = partial.size() / 2 + 40;  // token 1, column 40
  partial[spoilt] = partial[spoilt + 1] = 0xFFFF;
  const cuda::DeviceMemory rows(gpu.context, partial.size() * 2);
  gpu.stream->copy(rows.address(), partial.data(), rows.bytes());
  gpu.stream->synchronize();
  std::vector<RankCall> calls;
  for (int rank = 0; rank < 2; ++rank) {
    PreparedTail& tail = door.tail(0, rank);
    tail.push(door.shared(inputs, rank), 2, Mode::publish);
    launch_user(gpu, door.native(rank), "#include \"kernels/publish_rows.cuh\"\n", "moetail_publish_rows",
                kGrid, false, rank == 1 ? defines : Defines{}, tail.publish(2, Mode::publish),
                rows.as<const u16>());
    ::moetail::Call call;
    call.batch = 2;
    call.mode = Mode::publish;
    call.routed = Routed::published();
    calls.push_back({&tail, call});
  }
  const auto taken = door.make_rows(2);
  const auto views = door.world.run(calls);
  for (std::size_t rank = 0; rank < 2; ++rank)
    door.boxes[rank].take(views[rank],
                          {taken[rank].as<u16>(), 2 * static_cast<std::size_t>(door.shape().hidden)});
  try {
    door.world.synchronize();
  } catch (const Error&) {
  }
  if (const auto fault = door.boxes[0].status()) return fault;
  // NaN, and not a hang: the row of the spoilt token holds what the clean-up made of it.
  const auto read = door.read(taken, 2);
  require((read.back() & 0x7FFF) > 0x7F80 && (read.front() & 0x7FFF) < 0x7F80, "the NaN is not in token 1");
  return std::nullopt;
}

void sentinel_control(const Gpu& gpu) {
  if (const auto fault = publish_sentinel(gpu, {}))
    throw Failure(fmt::format("fails with the clean-up in place: {}", fault->text()));
  const auto fault = publish_sentinel(gpu, {"MOETAIL_WITHOUT_SENTINEL_CLEANUP=1"});
  require(fault.has_value(), "passes without the clean-up: nothing is tested");
  fmt::print("  without the clean-up: {}\n", fault->text());
  const auto& record = fault->record;
  require(record.kind == protocol::FaultKind::deadline || record.kind == protocol::FaultKind::poisoned,
          "another fault");
  require(record.kind == protocol::FaultKind::poisoned ||
              (record.site == Site::latent_poll && record.peer == 1 && record.token == 1),
          "it does not name rank 1's latents of token 1");
}

/// Two ranks on streams of their own, rank 1 late with its columns of every output row; consumers of the device header built with `defines`.
/// Rank 0 must wait for the new columns, and not take the last call's.
void consume_late(const Gpu& gpu, const Defines& defines) {
  Rig rig(gpu, small_shape(2), World::streams);
  rig.defines = {"MOETAIL_STALL_NS=20000000"};
  rig.stall = {1, Site::out_publish};
  std::vector<const cuda::BoxMemory*> boxes;
  for (auto& box : rig.boxes()) boxes.push_back(&box);
  std::vector<Call> calls(3);
  std::vector<DeviceInputs> inputs;
  std::vector<std::vector<cuda::DeviceMemory>> hidden;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    calls[i].batch = 2;
    calls[i].seed = 60 + i;
    inputs.push_back(rig.upload(calls[i]));
    hidden.push_back(rig.make_destinations(2));
    for (const auto& rows : hidden.back()) gpu.stream->fill(rows.address(), 0, rows.bytes() / 4);
  }
  rig.warm_up({calls[0]});
  gpu.stream->synchronize();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    rig.enqueue(calls[i], inputs[i]);
    for (int rank = 0; rank < 2; ++rank) {
      auto& box = *boxes[static_cast<std::size_t>(rank)];
      OutConsumer consumer;
      consumer.box = cuda::BoxMemory::view(boxes, rank);
      consumer.batch = 2;
      consumer.link.fault = box.fault_cell();
      consumer.link.rearm_others = box.device();
      consumer.link.deadline_ns = consumer.link.first_deadline_ns = rig.deadline_ns;
      launch_user(gpu, rig.stream(rank), example_kernels(), "engine_add_output", kGrid, true, defines,
                  consumer, hidden[i][static_cast<std::size_t>(rank)].as<protocol::Line>());
    }
  }
  rig.synchronize();
  rig.require_no_fault();
  for (std::size_t i = 0; i < calls.size(); ++i) rig.judge(calls[i], inputs[i], rig.equal_rows(hidden[i], 2));
}

void rearm_control(const Gpu& gpu) {
  try {
    consume_late(gpu, {});
  } catch (const Failure& failure) {
    throw Failure(fmt::format("fails with the re-arm in place: {}", failure.what()));
  }
  std::string seen;
  try {
    consume_late(gpu, {"MOETAIL_WITHOUT_CONSUMER_REARM=1"});
  } catch (const Failure& failure) {
    seen = failure.what();
  }
  require(!seen.empty(), "passes without the re-arm: nothing is tested");
  require(seen.find("fault") == std::string::npos, "a fault, and not the last call's columns: {}", seen);
  fmt::print("  without the re-arm: {}\n", seen.substr(0, 120));
}

}  // namespace

std::vector<Case> user_cases() {
  return {{"user.t1",
           [](const Gpu& gpu) {
             user_kernels({gpu, small_shape(1), ::moetail::World::single(on_cuda())});
           }},
          {"user.loopback.t4",
           [](const Gpu& gpu) {
             user_kernels({gpu, small_shape(4), ::moetail::World::virtual_ranks(4, on_cuda())});
           }},
          {"user.replay.t8",
           [](const Gpu& gpu) {
             user_kernels({gpu, small_shape(8), ::moetail::World::replay(3, 8)});
           }},
          {"user.control.sentinel_cleanup", sentinel_control},
          {"user.control.consumer_rearm", rearm_control}};
}

}  // namespace moetail::gpu
