// SPDX-License-Identifier: Apache-2.0
// Every kernel in small shapes and few calls: what compute-sanitizer's tools run (`make gpu-sanitize`), and a quick look at all of it.
#include <utility>

#include "tests/gpu/door.hpp"

namespace moetail::gpu {
namespace {

Shape tiny_shape(int ranks) {
  Shape shape;
  shape.hidden = 512;
  shape.latent = 256;
  shape.ranks = ranks;
  shape.top_k = 4;
  shape.capacity = 4;
  shape.poll_capacity = 4;
  return shape;
}

std::vector<Call> variants() {
  std::vector<Call> calls(8);
  calls[1].shares_reduced = true;
  calls[2].form = Form::permuted;
  calls[2].weights = WeightType::bf16;
  calls[2].residual = true;
  calls[3].mode = Mode::publish;
  calls[3].pushes = false;
  calls[4].mode = Mode::publish;
  calls[4].form = Form::partial;
  calls[4].shares_reduced = true;
  calls[5].mode = Mode::twoshot;
  calls[6].mode = Mode::front_poll;
  calls[7].mode = Mode::twoshot;
  calls[7].one_launch = true;
  for (std::size_t i = 0; i < calls.size(); ++i) calls[i].batch = 1 + static_cast<int>(2 * i % 4);
  return calls;
}

/// All variants twice, so that every slot is used and re-armed; batches go up and down.
void all_modes(const Gpu& gpu, World world, int ranks) {
  Rig rig(gpu, tiny_shape(ranks), world);
  const auto calls = variants();
  rig.warm_up(calls);
  for (int round = 0; round < 2; ++round)
    for (const auto& call : calls) {
      try {
        rig.check(call);
      } catch (const Failure& failure) {
        throw Failure(
            fmt::format("{} B = {}: {}", protocol::mode_name(call.mode), call.batch, failure.what()));
      }
    }
}

/// One rank whose blocks have more to do than these shapes give them: many tokens and 16 warps, shared sums, and row blocks that stream
/// through a ring of stages with an exchange each.
void busy(const Gpu& gpu) {
  Shape shape = tiny_shape(8);
  shape.capacity = 128;
  for (const int batch : {16, 32, 64, 57, 128, 100, 3})
    for (const Mode mode : {Mode::front, Mode::twoshot}) {
      Call call;
      call.batch = batch;
      call.mode = mode;
      if (batch > 32 || batch == 3) call.choice.warps = 16;
      call.one_launch = mode == Mode::twoshot;
      call.put = kernels::PutBy::own;
      Rig rig(gpu, shape, World::replay, 1, 3);
      const auto inputs = rig.upload(call);
      rig.fill_peers(call, inputs);
      for (int i = 0; i < 2; ++i) rig.check(call, inputs);
    }
  shape = tiny_shape(1);
  shape.hidden = 128 * 7 * 5;  // five row blocks of a cluster, of which three fit
  shape.latent = 3584;
  Rig rig(gpu, shape, World::replay);
  for (const int batch : {1, 4}) {
    Call call;
    call.batch = batch;
    for (int i = 0; i < 2; ++i) rig.check(call);
  }
}

void replay(const Gpu& gpu) {
  for (auto call : variants()) {
    if (call.residual) continue;
    call.put = kernels::PutBy::own;
    Rig rig(gpu, tiny_shape(8), World::replay, 1, 3);
    rig.warm_up({call});
    const auto inputs = rig.upload(call);
    rig.fill_peers(call, inputs);
    for (int i = 0; i < 4; ++i) rig.check(call, inputs);
  }
}

/// A wait that ends: the record, the poison, and a launch on the poisoned box.
void fault(const Gpu& gpu) {
  Rig rig(gpu, tiny_shape(2), World::replay);
  rig.deadline_ns = 50'000'000;
  Call call;
  call.put = kernels::PutBy::own;
  rig.warm_up({call});
  const auto inputs = rig.upload(call);
  for (int i = 0; i < 2; ++i) rig.enqueue(call, inputs);
  rig.synchronize();
  const auto record = rig.boxes().front().fault();
  require(record.has_value() && record->kind == protocol::FaultKind::deadline, "no deadline fault");
}

/// The same where each warp polls the shared partials of the rows that it finishes: peers that call one token less, so that single lanes of a warp see
/// the other header, or wait for a token that does not come.
void fault_of_many(const Gpu& gpu) {
  Shape shape = tiny_shape(8);
  shape.capacity = 128;
  for (const auto& [mode, warps] : {std::pair{Mode::front, KernelChoice::kOwn}, {Mode::twoshot, 16}}) {
    Rig rig(gpu, shape, World::replay, 1, 3);
    Call theirs;
    theirs.batch = 100;
    theirs.mode = mode;
    theirs.one_launch = mode == Mode::twoshot;
    theirs.put = kernels::PutBy::own;
    theirs.choice.warps = warps;
    Call mine = theirs;
    mine.batch = 101;
    rig.warm_up({mine});
    rig.fill_peers(theirs, rig.upload(theirs));
    const auto inputs = rig.upload(mine);
    for (int i = 0; i < 2; ++i) rig.enqueue(mine, inputs);  // the second one on a poisoned box
    rig.synchronize();
    const auto record = rig.boxes().front().fault();
    require(record.has_value(), "{}, {} warps: no fault", protocol::mode_name(mode), warps);
    require(record->kind == protocol::FaultKind::header_mismatch && record->expected == 101 &&
                record->seen == 100,
            "{}, {} warps: {} at {}", protocol::mode_name(mode), warps, fault_kind_name(record->kind),
            site_name(record->site));
  }
}

/// Through the door, with a graph.
void door(const Gpu& gpu) {
  WorldOptions options = on_cuda();
  options.deadline = options.first_deadline = std::chrono::milliseconds(Rig::default_deadline_ns / 1'000'000);
  Door door(gpu, tiny_shape(2), ::moetail::World::virtual_ranks(2, options));
  const auto inputs = door.make_inputs(2, 3);
  const auto rows = door.make_rows(2), again = door.make_rows(2);
  for (const Mode mode : {Mode::front, Mode::publish}) {
    door.call(0, inputs, mode, rows);
    door.world.synchronize();
    const auto stream = door.native(0);
    stream.begin_capture();
    door.call(0, inputs, mode, again);
    const cuda::GraphExec exec(stream.end_capture());
    for (int i = 0; i < 3; ++i) exec.launch(stream);
    door.world.synchronize();
    door.judge(0, inputs, mode, door.read(rows, 2));
    require(door.read(rows, 2) == door.read(again, 2), "a replay with other bits");
  }
}

}  // namespace

std::vector<Case> small_cases() {
  return {{"small.t1", [](const Gpu& gpu) { all_modes(gpu, World::streams, 1); }},
          {"small.loopback.t2", [](const Gpu& gpu) { all_modes(gpu, World::loopback, 2); }},
          {"small.replay.t8", replay},
          {"small.busy", busy},
          {"small.fault", fault},
          {"small.fault_of_many", fault_of_many},
          {"small.door", door}};
}

}  // namespace moetail::gpu
