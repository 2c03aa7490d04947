// SPDX-License-Identifier: Apache-2.0
// Negative controls: each safeguard's scenario has to pass as the kernels are, and to fail in kernels built without the safeguard
// (src/protocol/safeguards.hpp), by a wrong result or a fault. Every schedule is forced (src/kernels/stall.hpp), none hoped for.
#include "tests/gpu/rig.hpp"

namespace moetail::gpu {
namespace {

using protocol::Site;
using Defines = std::vector<std::string>;

constexpr u64 kDeadline = 300'000'000;
constexpr u64 kLate = 2'000'000;
const char* const kStall = "MOETAIL_STALL_NS=20000000";

/// A scenario throws Failure where its result is wrong or a box has a fault. Anything else, a kernel that does not compile among it,
/// is no control's proof and goes up.
void control(const Gpu& gpu, void (*scenario)(const Gpu&, const Defines&), const char* safeguard) {
  try {
    scenario(gpu, {});
  } catch (const Failure& failure) {
    throw Failure(fmt::format("fails with the safeguard in place: {}", failure.what()));
  }
  std::string seen;
  try {
    scenario(gpu, {fmt::format("MOETAIL_WITHOUT_{}=1", safeguard)});
  } catch (const Failure& failure) {
    seen = failure.what();
  }
  require(!seen.empty(), "passes without the safeguard: nothing is tested");
  fmt::print("  without {}: {}\n", safeguard, seen.substr(0, 120));
}

Defines join(Defines defines, std::initializer_list<const char*> more) {
  defines.insert(defines.end(), more.begin(), more.end());
  return defines;
}

/// Enqueues the calls without a look between them, then judges all.
void run_all(Rig& rig, const std::vector<Call>& calls) {
  rig.deadline_ns = kDeadline;
  rig.warm_up(calls);
  std::vector<DeviceInputs> inputs;
  std::vector<std::vector<cuda::DeviceMemory>> rows;
  for (const auto& call : calls) {
    inputs.push_back(rig.upload(call));
    rows.push_back(rig.make_destinations(call.batch));
  }
  for (std::size_t i = 0; i < calls.size(); ++i) {
    rig.enqueue(calls[i], inputs[i]);
    rig.consume(calls[i], inputs[i], rows[i]);
  }
  rig.synchronize();
  rig.require_no_fault();
  for (std::size_t i = 0; i < calls.size(); ++i)
    rig.judge(calls[i], inputs[i], rig.equal_rows(rows[i], calls[i].batch));
}

std::vector<Call> calls_of(std::initializer_list<int> batches) {
  std::vector<Call> calls;
  for (const int batch : batches) {
    Call call;
    call.batch = batch;
    call.seed = 40 + calls.size();
    calls.push_back(call);
  }
  return calls;
}

// Rank 0's re-arm comes late, as it may; rank 1 has its output row by then and publishes the next call. Two launches on two streams:
// in loopback no rank gets a call ahead.
void third_slot(const Gpu& gpu, const Defines& defines) {
  Rig rig(gpu, small_shape(2), World::streams);
  rig.defines = join(defines, {"MOETAIL_LATE_REARM=1", kStall});
  rig.stall = {0, Site::rearm};
  run_all(rig, calls_of({2, 2, 2, 2}));
}

// Four rows, then one, then four again in the slot of the first call, where rank 1 is late: rank 0 has to wait for its rows, not to
// take what the first call left.
void rearm_size(const Gpu& gpu, const Defines& defines) {
  Rig rig(gpu, small_shape(2), World::loopback);
  rig.defines = join(defines, {kStall});
  rig.stall = {1, Site::latent_publish};
  run_all(rig, calls_of({4, 1, 1, 4}));
}

// A finalized partial and a shared row that hold the sentinel word.
void sentinel(const Gpu& gpu, const Defines& defines) {
  Rig rig(gpu, small_shape(2), World::loopback);
  rig.defines = defines;
  auto calls = calls_of({2});
  calls[0].form = Form::partial;
  calls[0].specials = {verify::special::kSentinel, 0.05};
  run_all(rig, calls);
}

// The kernel before lets its successor start at once and writes the expert rows late.
void dependency_wait(const Gpu& gpu, const Defines& defines) {
  Rig rig(gpu, small_shape(1), World::streams);
  rig.defines = defines;
  rig.deadline_ns = kDeadline;
  const auto call = calls_of({2})[0];
  rig.warm_up({call});
  const auto inputs = rig.upload(call);
  auto* rows = const_cast<u16*>(inputs.ranks[0].rows);
  const std::size_t bytes = inputs.host.arrays[0].rows.size() * 2;
  const cuda::DeviceMemory kept(gpu.context, bytes);
  gpu.stream->copy(kept.address(), static_cast<const void*>(rows), bytes);
  gpu.stream->fill(reinterpret_cast<cuda::abi::DevicePtr>(rows), 0x3F803F80u, bytes / 4);
  gpu.stream->synchronize();
  const auto taken = rig.make_destinations(call.batch);
  launch_late_writer(gpu, rig.stream(0), rows, kept.as<u8>(), bytes, kLate);
  rig.enqueue(call, inputs);
  rig.consume(call, inputs, taken);
  rig.synchronize();
  rig.require_no_fault();
  rig.judge(call, inputs, rig.equal_rows(taken, call.batch));
}

// One block of rank 0 reads the epoch long after the others have.
void last_arrival(const Gpu& gpu, const Defines& defines) {
  Rig rig(gpu, small_shape(2), World::loopback);
  rig.defines = join(defines, {kStall});
  rig.stall = {0, Site::epoch, 3};
  run_all(rig, calls_of({1, 1}));
}

}  // namespace

std::vector<Case> control_cases() {
  return {
      {"control.third_slot", [](const Gpu& gpu) { control(gpu, third_slot, "THIRD_SLOT"); }},
      {"control.rearm_size", [](const Gpu& gpu) { control(gpu, rearm_size, "REARM_SIZE"); }},
      {"control.sentinel_cleanup", [](const Gpu& gpu) { control(gpu, sentinel, "SENTINEL_CLEANUP"); }},
      {"control.dependency_wait", [](const Gpu& gpu) { control(gpu, dependency_wait, "DEPENDENCY_WAIT"); }},
      {"control.last_arrival", [](const Gpu& gpu) { control(gpu, last_arrival, "LAST_ARRIVAL"); }}};
}

}  // namespace moetail::gpu
