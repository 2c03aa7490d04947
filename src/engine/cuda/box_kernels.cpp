// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/box_kernels.hpp"

#include <cstddef>
#include <cstring>
#include <future>
#include <utility>
#include <vector>

#include "engine/cuda/planned.hpp"

namespace moetail::cuda {
namespace {

constexpr unsigned kRowsThreads = 256;  // kernels/publish_rows.cuh, a block
// Loopback shows that a call is right, not how fast.
constexpr std::size_t kLoopbackSpillBytes = 512;

/// What of a call its kernel is compiled for: calls that differ in nothing else share it.
engine::TailCall relevant_part(kernels::Kind kind, const engine::TailCall& call) {
  using kernels::Kind;
  engine::TailCall part;
  part.batch = call.batch;
  if (kind == Kind::take) return part;
  part.mode = call.mode;
  if (kind == Kind::push) return part;
  if (kind != Kind::wave) {  // a wave finds what was routed in the mailboxes
    part.routed.form = call.routed.form;
    part.routed.weight_type = call.routed.weight_type;
  }
  if (kind == Kind::publish) return part;
  part.polls_slots = call.polls_slots;
  part.polls_shared = call.polls_shared;
  if (kind == Kind::fill) return part;
  part.in_one_launch = call.in_one_launch;
  part.shares_reduced = call.shares_reduced;
  part.residual = call.residual;
  part.early = kind == Kind::wave && call.early;
  part.kernel = call.kernel;
  return part;
}

}  // namespace

kernels::Kind tail_kind(const engine::TailCall& call) {
  const bool is_wave = (call.mode == Mode::publish || call.mode == Mode::twoshot) && !call.in_one_launch;
  return is_wave ? kernels::Kind::wave : kernels::Kind::front;
}

BoxKernels::BoxKernels(std::shared_ptr<KernelStore> store, kernels::DeviceShape device,
                       const protocol::Shape& shape, int ranks, kernels::PutBy put, bool traces)
    : store_(std::move(store)),
      device_(std::move(device)),
      shape_(shape),
      ranks_(ranks),
      put_(put),
      traces_(traces) {}

BoxKernels::Key BoxKernels::key_of(kernels::Kind kind, const engine::TailCall& call, int launch_ranks) {
  return {kind,
          call.batch,
          call.mode,
          call.routed.form,
          call.routed.weight_type,
          call.residual != nullptr,
          call.shares_reduced,
          call.polls_slots,
          call.polls_shared,
          call.early,
          call.kernel,
          launch_ranks};
}

/// What of a call its kernel is compiled for, in this world.
engine::TailCall BoxKernels::part_of(kernels::Kind kind, const engine::TailCall& whole_call) const {
  engine::TailCall call = relevant_part(kind, whole_call);
  if (ranks_ > 1) {
    call.early = false;  // without dependent launches there is nothing to start early
    call.kernel = {};    // of a rank that has a device to itself
  }
  return call;
}

KernelRequest BoxKernels::request_for(kernels::Kind kind, const engine::TailCall& call,
                                      int launch_ranks) const {
  kernels::PlanRequest request;
  request.shape = shape_;
  request.kind = kind;
  request.batch = call.batch;
  request.mode = call.mode;
  request.form = call.routed.form;
  request.weights = call.routed.weight_type;
  request.residual = call.residual != nullptr;
  request.shares_reduced = call.shares_reduced;
  request.polls_shared = call.polls_shared;
  request.early = call.early;
  request.choice = call.kernel;
  request.pushes = call.in_one_launch;
  request.launch_ranks = launch_ranks;
  request.put = put_;
  request.traces = traces_ && kernels::is_tail(kind);
  // What a front_poll tail polls, somebody else has filled: to its kernel the routed input is published.
  if (kind == kernels::Kind::front && call.polls_slots) request.form = Form::published;
  KernelRequest wanted =
      request_of(kernels::make_plan(request, device_), limits_of(store_->context()->facts()));
  wanted.budget.max_spill_bytes = kMostSpillBytes;
  if (ranks_ > 1) {
    // Ranks on one device do not start early: a spinning launch could take the place that its predecessor still needs.
    wanted.launch.dependent = false;
    // Up to four blocks share an SM's registers.
    wanted.budget.max_registers.reset();
    wanted.budget.max_spill_bytes = kLoopbackSpillBytes;
  }
  return wanted;
}

const BoxKernels::Ready& BoxKernels::get(kernels::Kind kind, const engine::TailCall& whole_call,
                                         int launch_ranks, const Stream& stream) {
  const engine::TailCall call = part_of(kind, whole_call);
  const Key key = key_of(kind, call, launch_ranks);
  const std::lock_guard lock(mutex_);
  if (const auto found = ready_.find(key); found != ready_.end()) return found->second;
  const KernelRequest wanted = request_for(kind, call, launch_ranks);
  Ready ready{store_->get(wanted, stream), wanted.launch};
  return ready_.emplace(key, std::move(ready)).first->second;
}

void BoxKernels::get_all(std::span<const Wanted> wanted, const engine::TailCall& whole_call,
                         const Stream& stream) {
  std::vector<KernelRequest> missing;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [kind, launch_ranks] : wanted) {
      const engine::TailCall call = part_of(kind, whole_call);
      if (ready_.count(key_of(kind, call, launch_ranks)) == 0)
        missing.push_back(request_for(kind, call, launch_ranks));
    }
  }
  // Each takes seconds of one core where nobody has compiled it before.
  if (missing.size() > 1 && !stream.is_capturing()) {
    std::vector<std::future<void>> made;
    made.reserve(missing.size());
    for (const KernelRequest& request : missing)
      made.push_back(std::async(std::launch::async, [this, &request] { store_->warm_up(request); }));
    for (auto& one : made) one.wait();
    for (auto& one : made) one.get();
  }
  for (const auto& [kind, launch_ranks] : wanted) get(kind, whole_call, launch_ranks, stream);
}

const BoxKernels::Ready& BoxKernels::publish_rows(const Stream& stream) {
  const std::lock_guard lock(mutex_);
  if (publish_rows_) return *publish_rows_;
  KernelRequest wanted;
  wanted.spec.entry = "moetail_publish_rows";
  wanted.spec.source = "#include \"kernels/publish_rows.cuh\"\n";
  wanted.spec.arch = store_->context()->facts().arch();
  wanted.launch.threads = kRowsThreads;
  wanted.launch.dependent = ranks_ == 1;
  publish_rows_ = Ready{store_->get(wanted, stream), wanted.launch};
  return *publish_rows_;
}

void BoxKernels::launch(const Ready& ready, const Stream& stream, int batch,
                        std::span<const kernels::RankArgs> ranks) {
  // LaunchArgs of as many ranks, whose number is a template's there and a value here.
  using Head = kernels::LaunchArgs<1>;
  constexpr std::size_t kRanksAt = offsetof(Head, rank);
  static_assert(sizeof(Head) == kRanksAt + sizeof(kernels::RankArgs));
  alignas(16) std::byte bytes[sizeof(kernels::LaunchArgs<protocol::kMaxRanks>)] = {};
  static_assert(offsetof(Head, batch) == 0);
  const protocol::i32 rows = batch;
  std::memcpy(bytes, &rows, sizeof rows);
  std::memcpy(bytes + kRanksAt, ranks.data(), ranks.size_bytes());
  const void* const parameter = bytes;
  ready.kernel->launch(ready.launch, stream, {&parameter, 1});
}

}  // namespace moetail::cuda
