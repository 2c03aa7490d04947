// SPDX-License-Identifier: Apache-2.0
// Waits that end: a rank that is missing, a map index beyond the rows, ranks that disagree, and launches on a poisoned box.
#include <chrono>

#include "tests/gpu/rig.hpp"

namespace moetail::gpu {
namespace {

using Clock = std::chrono::steady_clock;
using protocol::FaultKind;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Shape k3() {
  return Shape{};
}

void missing_rank(const Gpu& gpu) {
  Rig rig(gpu, k3(), World::replay, 1, 2);
  rig.deadline_ns = 200'000'000;
  Call call;
  call.put = kernels::PutBy::own;
  const auto inputs = rig.upload(call);
  // Peers' slots are never filled: nobody serves this rank.
  auto begin = Clock::now();
  rig.launch(call, inputs, kernels::Kind::front);
  gpu.stream->synchronize();
  const double first = seconds_since(begin);
  const auto fault = rig.boxes().front().fault();
  require(fault.has_value(), "no fault after {:.3f} s", first);
  require(fault->kind == FaultKind::deadline, "kind {}", fault_kind_name(fault->kind));
  require(fault->rank == 2 && fault->peer >= 0 && fault->peer != 2, "rank {}, peer {}", fault->rank,
          fault->peer);
  require(first > 0.19 && first < 1.0, "the deadline of 0.2 s ended after {:.3f} s", first);
  begin = Clock::now();
  for (int i = 0; i < 92; ++i) rig.launch(call, inputs, kernels::Kind::front);
  gpu.stream->synchronize();
  const double later = seconds_since(begin);
  require(later < 0.1, "92 launches on a poisoned box took {:.3f} s", later);
  rig.arm_all();
  rig.fill_peers(call, inputs);
  rig.check(call, inputs);
}

void map_index(const Gpu& gpu) {
  Shape shape;
  shape.ranks = 2;
  Rig rig(gpu, shape, World::loopback);
  Call call;
  call.batch = 3;
  call.form = Form::permuted;
  auto inputs = rig.upload(call);
  const auto entries = inputs.host.arrays[1].map;
  auto spoilt = entries;
  spoilt[20] = inputs.ranks[1].num_rows;
  gpu.stream->copy(reinterpret_cast<cuda::abi::DevicePtr>(inputs.ranks[1].map), spoilt.data(),
                   spoilt.size() * 4);
  rig.launch(call, inputs, kernels::Kind::front);
  gpu.stream->synchronize();
  const auto fault = rig.boxes()[1].fault(), other = rig.boxes()[0].fault();
  require(fault.has_value() && fault->kind == FaultKind::map_index, "rank 1 has no map fault");
  require(fault->token == 1 && fault->k == 4, "token {}, k {}", fault->token, fault->k);
  require(fault->seen == static_cast<u64>(inputs.ranks[1].num_rows) && fault->expected == fault->seen,
          "seen {}", fault->seen);
  require(other.has_value() && other->kind == FaultKind::poisoned && other->peer == 1,
          "rank 0 does not blame rank 1");
  rig.arm_all();
  gpu.stream->copy(reinterpret_cast<cuda::abi::DevicePtr>(inputs.ranks[1].map), entries.data(),
                   entries.size() * 4);
  rig.check(call, inputs);
}

void layers_disagree(const Gpu& gpu) {
  Shape shape;
  shape.ranks = 4;
  Rig rig(gpu, shape, World::loopback);
  Call call;
  auto inputs = rig.upload(call);
  for (auto& rank : inputs.ranks) rank.layer = 7;
  inputs.ranks[3].layer = 8;
  rig.launch(call, inputs, kernels::Kind::front);
  gpu.stream->synchronize();
  int mismatches = 0;
  for (auto& box : rig.boxes()) {
    const auto fault = box.fault();
    require(fault.has_value(), "a rank has no fault");
    if (fault->kind == FaultKind::header_mismatch) {
      ++mismatches;
      require(fault->field == protocol::HeaderField::layer, "field {}", header_field_name(fault->field));
    }
  }
  require(mismatches > 0, "no rank names the field");
}

void aborted(const Gpu& gpu) {
  Rig rig(gpu, k3(), World::replay);
  rig.deadline_ns = 0;
  Call call;
  call.put = kernels::PutBy::own;
  const auto inputs = rig.upload(call);
  rig.launch(call, inputs, kernels::Kind::front);
  rig.boxes().front().stop();
  gpu.stream->synchronize();
  const auto fault = rig.boxes().front().fault();
  require(fault.has_value() && fault->kind == FaultKind::aborted, "no abort");
}

}  // namespace

std::vector<Case> fault_cases() {
  return {{"fault.missing_rank", missing_rank},
          {"fault.map_index", map_index},
          {"fault.layers_disagree", layers_disagree},
          {"fault.aborted", aborted}};
}

}  // namespace moetail::gpu
