// SPDX-License-Identifier: Apache-2.0
// Ranks that do not do the same, each on a stream of its own: another batch, mode, layer, eps; a call missed, a call too many; a rank that
// is frozen for longer than the deadline, wherever it is; a box for which there is no memory. Each ends in a fault that says so, and the
// boxes serve right results once they are armed again.
#include <chrono>
#include <set>

#include "base/error.hpp"
#include "tests/gpu/door.hpp"

namespace moetail::gpu {
namespace {

using protocol::FaultKind;
using protocol::HeaderField;
using protocol::Site;
using Clock = std::chrono::steady_clock;

constexpr int kRanks = 2;

Call call_of(Mode mode) {
  Call call;
  call.mode = mode;
  call.batch = 3;
  return call;
}

constexpr Mode kModes[] = {Mode::front, Mode::publish, Mode::twoshot, Mode::front_poll};

/// Both ranks' boxes are armed again, and serve every mode.
void require_recovery(Rig& rig) {
  rig.stall = {};
  rig.deadline_ns = Rig::default_deadline_ns;
  rig.arm_all();
  for (const Mode mode : kModes) rig.check(call_of(mode));
}

/// Rank 0 makes one call, rank 1 another one that differs in `field`: both ranks fault, and who saw it first hand names the field, the
/// other rank and both values.
void require_mismatch(Rig& rig, HeaderField field, const Call& zero, const Call& one, u64 zeros, u64 ones) {
  const auto zeros_inputs = rig.upload(zero), ones_inputs = rig.upload(one);
  rig.enqueue_rank(zero, zeros_inputs, 0);
  rig.enqueue_rank(one, ones_inputs, 1);
  rig.synchronize();
  int first_hand = 0;
  for (auto& box : rig.boxes()) {
    const auto fault = box.fault();
    require(fault.has_value(), "{} against {}: a rank has no fault", zeros, ones);
    if (fault->kind == FaultKind::poisoned) continue;
    ++first_hand;
    require(fault->kind == FaultKind::header_mismatch && fault->field == field,
            "{} against {}: rank {} has {} {} at {}, expected {}", zeros, ones, fault->rank,
            fault_kind_name(fault->kind), header_field_name(fault->field), site_name(fault->site),
            header_field_name(field));
    require(fault->peer == 1 - fault->rank && fault->site == Site::header_poll, "rank {}, peer {}, at {}",
            fault->rank, fault->peer, site_name(fault->site));
    if (field != HeaderField::shape)
      require(fault->expected == (fault->rank == 0 ? zeros : ones) &&
                  fault->seen == (fault->rank == 0 ? ones : zeros),
              "{} expected, {} seen", fault->expected, fault->seen);
  }
  require(first_hand > 0, "no rank names the field {}", header_field_name(field));
  require_recovery(rig);
}

Rig make_rig(const Gpu& gpu) {
  return Rig(gpu, small_shape(kRanks), World::streams, 1, 0, 2);
}

std::vector<Call> all_calls() {
  std::vector<Call> calls;
  for (const Mode mode : kModes)
    for (const int batch : {3, 5}) {
      calls.push_back(call_of(mode));
      calls.back().batch = batch;
    }
  return calls;
}

void batches_disagree(const Gpu& gpu) {
  Rig rig = make_rig(gpu);
  rig.warm_up(all_calls());
  for (const Mode mode : kModes) {
    Call other = call_of(mode);
    other.batch = 5;
    require_mismatch(rig, HeaderField::batch, call_of(mode), other, 3, 5);
  }
  fmt::print("  tried {}: modes\n", std::size(kModes));
}

void modes_disagree(const Gpu& gpu) {
  Rig rig = make_rig(gpu);
  rig.warm_up(all_calls());
  const auto pairs = {std::pair{Mode::front, Mode::publish}, {Mode::publish, Mode::twoshot}};
  for (const auto& [zero, one] : pairs)
    require_mismatch(rig, HeaderField::mode, call_of(zero), call_of(one), static_cast<u64>(zero),
                     static_cast<u64>(one));
  fmt::print("  tried {}: pairs of modes\n", pairs.size());
}

void shapes_disagree(const Gpu& gpu) {
  Rig rig = make_rig(gpu);
  auto calls = all_calls();
  for (const Mode mode : kModes) {
    calls.push_back(call_of(mode));
    calls.back().eps = 1e-3f;
  }
  rig.warm_up(calls);
  for (const Mode mode : kModes) {
    Call other = call_of(mode);
    other.eps = 1e-3f;
    require_mismatch(rig, HeaderField::shape, call_of(mode), other, 0, 1);
  }
  fmt::print("  tried {}: modes\n", std::size(kModes));
}

/// Rank `few` makes `calls - 1` calls of the same kind, the other one `calls`: it waits for a header that does not come, and names its peer.
void require_missing(Rig& rig, Mode mode, int few, int calls) {
  rig.deadline_ns = 100'000'000;
  const Call call = call_of(mode);
  const auto inputs = rig.upload(call);
  const auto rows = rig.make_destinations(call.batch);
  const auto begin = Clock::now();
  for (int i = 0; i < calls; ++i)
    for (int rank = 0; rank < kRanks; ++rank)
      if (rank != few || i + 1 < calls) rig.enqueue_rank(call, inputs, rank);
  rig.synchronize();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const auto fault = rig.boxes()[static_cast<std::size_t>(1 - few)].fault();
  require(fault.has_value() && fault->kind == FaultKind::deadline && fault->peer == few,
          "{}: the rank that made one call more has {}", protocol::mode_name(mode),
          fault ? fault_kind_name(fault->kind) : "no fault");
  require(seconds < 1.1, "it ended after {:.3f} s", seconds);
  require_recovery(rig);
}

void calls_disagree(const Gpu& gpu) {
  Rig rig = make_rig(gpu);
  rig.warm_up(all_calls());
  int tried = 0;
  for (const Mode mode : kModes)
    for (const int few : {0, 1})
      for (const int calls : {1, 3}) {
        require_missing(rig, mode, few, calls);
        ++tried;
      }
  // A call missed where the next ones have labels of their own: the ranks disagree in the layer.
  for (const Mode mode : kModes) {
    Call earlier = call_of(mode), later = call_of(mode);
    earlier.layer = 2;
    later.layer = 3;
    require_mismatch(rig, HeaderField::layer, earlier, later, 2, 3);
    ++tried;
  }
  fmt::print("  tried {}: calls missed or too many\n", tried);
}

/// Sites at which a rank that is frozen keeps its peer waiting in the same call.
std::set<Site> awaited_sites(const Call& call) {
  std::set<Site> sites = {Site::epoch, Site::header_publish, Site::shared_push};
  if (call.mode == Mode::twoshot)
    sites.insert({Site::twoshot_push, Site::twoshot_sum, Site::gather_publish});
  else
    sites.insert(Site::latent_publish);
  return sites;
}

void frozen(const Gpu& gpu) {
  Rig rig = make_rig(gpu);
  rig.defines = {"MOETAIL_STALL_NS=150000000"};
  rig.warm_up(all_calls());
  int named = 0, unharmed = 0;
  for (const Mode mode : kModes) {
    const Call call = call_of(mode);
    const auto inputs = rig.upload(call);
    for (int at = 1; at < protocol::kSites; ++at) {
      const Site site = static_cast<Site>(at);
      if (few_calls && awaited_sites(call).count(site) == 0) continue;
      rig.arm_all();
      const auto expected = rig.check(call, inputs);
      const auto rows = rig.make_destinations(call.batch);
      rig.stall = {1, site, -1};
      rig.deadline_ns = 50'000'000;
      rig.enqueue(call, inputs);
      rig.consume(call, inputs, rows);
      rig.synchronize();
      const std::string where = fmt::format("{}, frozen at {}", protocol::mode_name(mode), site_name(site));
      const auto waiting = rig.boxes()[0].fault(), woken = rig.boxes()[1].fault();
      if (waiting.has_value()) {
        require(waiting->kind == FaultKind::deadline && waiting->peer == 1, "{}: {} at {}, peer {}", where,
                fault_kind_name(waiting->kind), site_name(waiting->site), waiting->peer);
        require(woken.has_value(), "{}: the frozen rank knows nothing of it", where);
        ++named;
      } else {
        require(awaited_sites(call).count(site) == 0, "{}: nobody missed it", where);
        require(rig.equal_rows(rows, call.batch) == expected, "{}: other bits", where);
        ++unharmed;
      }
      rig.stall = {};
      rig.deadline_ns = Rig::default_deadline_ns;
    }
  }
  fmt::print("  tried {}: freezes, {} named, {} kept nobody waiting\n", named + unharmed, named, unharmed);
  require_recovery(rig);
}

/// Set-up fails on all ranks where one box has no memory, leaves nothing behind, and says what was asked for.
void no_memory(const Gpu& gpu) {
  Shape shape;
  shape.capacity = 65535;  // some 20 GB of mailboxes a rank
  const auto world = ::moetail::World::virtual_ranks(8, on_cuda());
  const std::size_t before = gpu.free_bytes();
  const auto bytes = protocol::make_layout(shape).total_bytes * 8;
  require(bytes > before, "8 boxes of capacity {} are {} bytes, and {} are free", shape.capacity, bytes,
          before);
  bool refused = false;
  try {
    const auto boxes = world.make_boxes(shape);
  } catch (const Error& error) {
    refused = error.code() == Code::resource;
    fmt::print("  {}\n", error.what());
  }
  require(refused, "boxes of {} bytes where {} are free were not refused", bytes, before);
  require(gpu.free_bytes() >= before, "{} bytes are gone", before - gpu.free_bytes());
  require(!world.make_boxes(small_shape(8)).empty(), "no boxes afterwards");
}

}  // namespace

std::vector<Case> mismatch_cases() {
  return {{"mismatch.batches", batches_disagree},
          {"mismatch.modes", modes_disagree},
          {"mismatch.shapes", shapes_disagree},
          {"mismatch.calls", calls_disagree},
          {"mismatch.frozen", frozen},
          {"mismatch.no_memory", no_memory}};
}

}  // namespace moetail::gpu
