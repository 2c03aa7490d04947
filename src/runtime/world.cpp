// SPDX-License-Identifier: Apache-2.0
// World and Stream: the ranks of one process, their streams, and what is done with all of them together.
#include <algorithm>
#include <thread>

#include "base/env.hpp"
#include "base/error.hpp"
#include "engine/cpu/arith.hpp"
#include "runtime/impl.hpp"

namespace moetail {
namespace {

std::shared_ptr<World::Impl> make_impl(int ranks, const WorldOptions& options) {
  if (!protocol::is_supported_rank_count(ranks))
    base::bad_argument("ranks", ranks, protocol::rule_text(protocol::ShapeRule::ranks).accepted);
  if (options.engine == Engine::cuda)
    base::fail(Code::unsupported, "engine = cuda: accepted is auto or cpu: this build has no CUDA engine");
  if (options.threads < 0) base::bad_argument("threads", options.threads, "0 (one a core) or more");
  constexpr std::int64_t kLongestDeadlineMs = 1'000'000'000;  // far below what overflows in nanoseconds
  for (const auto deadline : {options.deadline, options.first_deadline})
    if (deadline.count() < 0 || deadline.count() > kLongestDeadlineMs)
      base::bad_argument("deadline (ms)", deadline.count(),
                         fmt::format("0 (none) or more, at most {}", kLongestDeadlineMs));
  // A wrong MOETAIL_CPU_TARGET is an error here, where somebody hears it, not in a launch.
  static_cast<void>(cpu::arith());
  auto impl = std::make_shared<World::Impl>();
  impl->options = options;
  if (!options.policy_file.empty()) impl->policy = Policy::load(options.policy_file);
  impl->threads = options.threads > 0 ? options.threads
                                      : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  for (int rank = 0; rank < ranks; ++rank) {
    World::Impl::Rank resources;
    resources.main = std::make_shared<Stream::Impl>(fmt::format("rank{}.main", rank), rank);
    resources.side = std::make_shared<Stream::Impl>(fmt::format("rank{}.side", rank), rank);
    resources.team = std::make_unique<cpu::Team>(std::max(1, impl->threads / ranks));
    impl->ranks.push_back(std::move(resources));
  }
  return impl;
}

const World::Impl::Rank& rank_of(const World::Impl& impl, int rank) {
  if (rank < 0 || rank >= static_cast<int>(impl.ranks.size()))
    base::bad_argument("rank", rank, fmt::format("0 to {}", impl.ranks.size() - 1));
  return impl.ranks[static_cast<std::size_t>(rank)];
}

/// Waits for one stream. What a launch threw comes back as an Error.
void wait_for_stream(Stream::Impl& stream) {
  try {
    stream.thread.synchronize();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    base::fail(Code::fault, "stream {}: a launch threw: {}", stream.thread.name(), error.what());
  } catch (...) {
    base::fail(Code::fault, "stream {}: a launch threw what is no std::exception", stream.thread.name());
  }
}

void wait_for_streams(const World::Impl& impl) {
  // All of them come to rest before any of them complains.
  for (const auto& rank : impl.ranks) {
    rank.main->thread.drain();
    rank.side->thread.drain();
  }
  for (const auto& rank : impl.ranks) {
    wait_for_stream(*rank.main);
    wait_for_stream(*rank.side);
  }
}

// Ranks outnumber cores as soon as two waiting threads can keep a third from running.
constexpr int kSpinsWithCoresToSpare = 4096;
constexpr int kSpinsWhenCrowded = 32;

transport::Copies copies_wanted() {
  const std::string value = base::read_env(base::kMulticast).value_or("1");
  if (value != "0" && value != "1")
    base::bad_argument(base::kMulticast.name, value, base::kMulticast.accepted);
  return value == "1" ? transport::Copies::one_for_all : transport::Copies::one_a_rank;
}

void arm(TailBox::Impl& box) {
  cpu::HostMemory memory;
  protocol::arm_box(memory, box.state.view);
}

}  // namespace

void Stream::launch(std::function<void()> work) const {
  if (!impl_) base::bad_argument("stream", "empty", "a stream of a world");
  impl_->thread.enqueue(std::move(work));
}

void Stream::synchronize() const {
  if (!impl_) base::bad_argument("stream", "empty", "a stream of a world");
  wait_for_stream(*impl_);
}

void Stream::join(const Stream& other) const {
  if (!impl_ || !other.impl_) base::bad_argument("stream", "empty", "a stream of a world");
  impl_->thread.join(other.impl_->thread);
}

World World::virtual_ranks(int ranks, const WorldOptions& options) {
  return World(make_impl(ranks, options));
}
World World::single(const WorldOptions& options) {
  return World(make_impl(1, options));
}

int World::ranks() const {
  return static_cast<int>(impl_->ranks.size());
}
int World::local_ranks() const {
  return ranks();
}
Engine World::engine() const {
  return Engine::cpu;
}
Stream World::main_stream(int rank) const {
  return Stream(rank_of(*impl_, rank).main);
}
Stream World::side_stream(int rank) const {
  return Stream(rank_of(*impl_, rank).side);
}

std::vector<TailBox> World::make_boxes(const Shape& shape) const {
  runtime::check_shape(shape);
  if (shape.ranks != ranks())
    base::bad_argument("shape.ranks", shape.ranks, fmt::format("{}, as in this world", ranks()));
  const auto layout = protocol::make_layout(shape);
  auto heap = std::make_shared<transport::HostHeap>(ranks(), layout.total_bytes, copies_wanted());
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const bool crowded = ranks() * impl_->ranks[0].team->clusters() > cores;
  std::vector<TailBox> boxes;
  for (int rank = 0; rank < ranks(); ++rank) {
    auto box = std::make_shared<TailBox::Impl>();
    box->world = impl_;
    box->heap = heap;
    box->shape = shape;
    box->rank = rank;
    box->state.view = heap->view(rank, layout);
    box->state.deadline = impl_->options.deadline;
    box->state.first_deadline = impl_->options.first_deadline;
    box->state.spins_before_park = crowded ? kSpinsWhenCrowded : kSpinsWithCoresToSpare;
    arm(*box);
    boxes.emplace_back(TailBox(box));
  }
  std::lock_guard lock(impl_->mutex);
  std::erase_if(impl_->boxes, [](const auto& box) { return box.expired(); });
  for (const TailBox& box : boxes) impl_->boxes.push_back(box.impl());
  return boxes;
}

std::vector<OutView> World::run(std::span<const RankCall> calls) const {
  if (calls.size() != static_cast<std::size_t>(local_ranks()))
    base::bad_argument("calls: size", calls.size(),
                       fmt::format("{}, one for each local rank", local_ranks()));
  std::vector<runtime::RankRun> runs;
  std::vector<bool> seen(calls.size(), false);
  for (const RankCall& call : calls) {
    if (call.tail == nullptr) base::bad_argument("calls: tail", "null", "a prepared tail");
    runs.push_back({"run", call.tail->impl(), call.call});
    const auto& box = *runs.back().tail->box.impl();
    if (box.world != impl_)
      base::bad_argument("calls: box", static_cast<const void*>(&box), "a box of this world");
    if (seen[static_cast<std::size_t>(box.rank)])
      base::bad_argument("calls: rank", box.rank, "each local rank once");
    seen[static_cast<std::size_t>(box.rank)] = true;
    if (call.call.batch != calls[0].call.batch)
      base::bad_argument(fmt::format("batch of rank {}", box.rank), call.call.batch,
                         fmt::format("{}, the same on all ranks", calls[0].call.batch));
    if (box.heap != calls[0].tail->impl()->box.impl()->heap)
      base::bad_argument(fmt::format("box of rank {}", box.rank), static_cast<const void*>(&box),
                         "boxes that one make_boxes returned");
    runtime::check_run(runs.back());
    if (runs.back().mode != runs[0].mode)
      base::bad_argument(fmt::format("mode of rank {}", box.rank), protocol::mode_name(runs.back().mode),
                         fmt::format("{}, the same on all ranks", protocol::mode_name(runs[0].mode)));
  }
  std::vector<OutView> views;
  views.reserve(runs.size());
  for (const auto& run : runs) views.push_back(runtime::enqueue_run(run));
  return views;
}

void World::synchronize() const {
  wait_for_streams(*impl_);
  std::optional<protocol::FaultRecord> first;
  {
    std::lock_guard lock(impl_->mutex);
    for (const auto& weak : impl_->boxes) {
      const auto box = weak.lock();
      const auto record = box ? box->state.fault.get() : std::nullopt;
      // Whoever found out by poison only repeats what another rank knows better.
      if (record && (!first || first->kind == protocol::FaultKind::poisoned)) first = record;
    }
  }
  if (first)
    base::fail(Code::fault, "{}; the box is poisoned until World::recover", FaultReport{*first}.text());
}

void World::recover(std::span<TailBox> boxes) const {
  if (boxes.size() != static_cast<std::size_t>(local_ranks()))
    base::bad_argument("boxes: size", boxes.size(),
                       fmt::format("{}, all boxes of one make_boxes", local_ranks()));
  std::vector<bool> seen(boxes.size(), false);
  for (const TailBox& box : boxes) {
    if (box.impl()->heap != boxes[0].impl()->heap || box.impl()->world != impl_)
      base::bad_argument(fmt::format("boxes: rank {}", box.rank()),
                         static_cast<const void*>(box.impl().get()),
                         "boxes that one make_boxes of this world returned");
    if (seen[static_cast<std::size_t>(box.rank())])
      base::bad_argument("boxes: rank", box.rank(), "each local rank once");
    seen[static_cast<std::size_t>(box.rank())] = true;
  }
  wait_for_streams(*impl_);
  for (TailBox& box : boxes) {
    const runtime::CallTracker::Use use(box.impl()->tracker, box.rank());
    arm(*box.impl());
    box.impl()->state.stop.store(false);
    box.impl()->state.fault.clear();
    box.impl()->tracker.reset();
  }
}

}  // namespace moetail
