// SPDX-License-Identifier: Apache-2.0
// World: the ranks of one process, and what is done with all of them together.
#include <algorithm>

#include "base/env.hpp"
#include "base/error.hpp"
#include "engine/cpu/group.hpp"
#include "engine/cuda/box_group.hpp"
#include "runtime/impl.hpp"
#include "transport/host.hpp"

namespace moetail {
namespace {

using runtime::RanksHere;

cpu::Mailboxes make_mailboxes(int ranks, const protocol::Layout& layout) {
  const auto heap =
      std::make_shared<transport::HostHeap>(ranks, layout.total_bytes, runtime::copies_wanted());
  cpu::Mailboxes mailboxes;
  for (int rank = 0; rank < ranks; ++rank) mailboxes.views.push_back(heap->view(rank, layout));
  mailboxes.owner = heap;
  return mailboxes;
}

std::unique_ptr<engine::Group> make_group(const RanksHere& here, const WorldOptions& options) {
  if (options.engine == Engine::cuda) {
    cuda::GroupOptions group;
    group.ranks = here.ranks;
    group.replay_rank = here.lone_rank;
    group.deadline = options.deadline;
    group.first_deadline = options.first_deadline;
    group.main_stream = static_cast<cuda::abi::Stream>(options.cuda_stream);
    group.trace = options.trace;
    group.replays_unicast = options.put == Put::unicast;
    return std::make_unique<cuda::Group>(group);
  }
  cpu::GroupOptions group;
  group.ranks = here.ranks;
  group.local_ranks = here.lone_rank == RanksHere::kAll ? here.ranks : 1;
  group.threads = options.threads;
  group.deadline = options.deadline;
  group.first_deadline = options.first_deadline;
  group.trace = options.trace;
  group.make_mailboxes = [ranks = here.ranks](const protocol::Layout& layout) {
    return make_mailboxes(ranks, layout);
  };
  return std::make_unique<cpu::Group>(group);
}

}  // namespace

transport::Copies runtime::copies_wanted() {
  const std::string value = base::read_env(base::kMulticast).value_or("1");
  if (value != "0" && value != "1")
    base::bad_argument(base::kMulticast.name, value, base::kMulticast.accepted);
  return value == "1" ? transport::Copies::one_for_all : transport::Copies::one_a_rank;
}

std::shared_ptr<World::Impl> runtime::make_world(const RanksHere& here, const WorldOptions& options) {
  if (!protocol::is_supported_rank_count(here.ranks))
    base::bad_argument("ranks", here.ranks, protocol::rule_text(protocol::ShapeRule::ranks).accepted);
  runtime::check_engine(options.engine);
  if (options.threads < 0) base::bad_argument("threads", options.threads, "0 (one a core) or more");
  constexpr std::int64_t kLongestDeadlineMs = 1'000'000'000;  // far below what overflows in nanoseconds
  for (const auto deadline : {options.deadline, options.first_deadline})
    if (deadline.count() < 0 || deadline.count() > kLongestDeadlineMs)
      base::bad_argument("deadline (ms)", deadline.count(),
                         fmt::format("0 (none) or more, at most {}", kLongestDeadlineMs));
  auto impl = std::make_shared<World::Impl>();
  impl->options = options;
  if (options.cuda_stream != nullptr && options.engine != Engine::cuda)
    base::bad_argument("cuda_stream", options.cuda_stream, "null, but with engine = cuda");
  const bool is_replay = options.engine == Engine::cuda && here.lone_rank != RanksHere::kAll;
  if (options.put != Put::automatic && !is_replay)
    base::bad_argument("put", options.put == Put::multicast ? "multicast" : "unicast",
                       "automatic, but in World::replay");
  if (options.policy != nullptr && !options.policy_file.empty())
    base::bad_argument("policy_file", options.policy_file, "empty where policy is set");
  impl->policy = options.policy != nullptr     ? *options.policy
                 : options.policy_file.empty() ? Policy::of(options.engine)
                                               : Policy::load(options.policy_file, options.engine);
  impl->group = make_group(here, options);
  impl->num_ranks = here.ranks;
  const bool has_all = here.lone_rank == RanksHere::kAll;
  impl->first_rank = has_all ? 0 : here.lone_rank;
  const int end_rank = has_all ? here.ranks : here.lone_rank + 1;
  for (int rank = impl->first_rank; rank < end_rank; ++rank) {
    const auto stream = [&](engine::StreamRole role) {
      return std::make_shared<Stream::Impl>(rank, impl->group->make_stream(rank, role));
    };
    impl->ranks.push_back({stream(engine::StreamRole::main), stream(engine::StreamRole::side)});
  }
  return impl;
}

namespace {

const World::Impl::Rank& rank_of(const World::Impl& impl, int rank) {
  const int index = rank - impl.first_rank;
  if (index < 0 || index >= static_cast<int>(impl.ranks.size()))
    base::bad_argument("rank", rank,
                       impl.ranks.size() == 1 ? fmt::format("{}", impl.first_rank)
                                              : fmt::format("0 to {}", impl.ranks.size() - 1));
  return impl.ranks[static_cast<std::size_t>(index)];
}

void wait_for_streams(const World::Impl& impl, const char* what) {
  for (const auto& rank : impl.ranks) runtime::check_not_capturing(*rank.main->stream, what);
  // All of them come to rest before any of them complains.
  for (const auto& rank : impl.ranks) {
    rank.main->stream->drain();
    rank.side->stream->drain();
  }
  for (const auto& rank : impl.ranks) {
    runtime::wait_for_stream(*rank.main);
    runtime::wait_for_stream(*rank.side);
  }
}

}  // namespace

std::optional<std::string> World::obstacle(Engine engine) {
  try {
    runtime::check_engine(engine);
    return std::nullopt;
  } catch (const Error& error) {
    return error.what();
  }
}

RankBuffer World::make_buffer(int rank, std::size_t bytes) const {
  runtime::check_not_capturing(*rank_of(*impl_, rank).main->stream, "make_buffer");
  return {impl_->group->allocate(rank, bytes), bytes};
}

World World::virtual_ranks(int ranks, const WorldOptions& options) {
  return World(runtime::make_world({ranks}, options));
}
World World::single(const WorldOptions& options) {
  return World(runtime::make_world({}, options));
}

World World::replay(int rank, int ranks, const WorldOptions& options) {
  if (!protocol::is_supported_rank_count(ranks))
    base::bad_argument("ranks", ranks, protocol::rule_text(protocol::ShapeRule::ranks).accepted);
  if (rank < 0 || rank >= ranks) base::bad_argument("rank", rank, fmt::format("0 to {}", ranks - 1));
  WorldOptions on_gpu = options;
  on_gpu.engine = Engine::cuda;
  return World(runtime::make_world({ranks, rank}, on_gpu));
}

int World::ranks() const {
  return impl_->num_ranks;
}
int World::local_ranks() const {
  return static_cast<int>(impl_->ranks.size());
}
int World::first_rank() const {
  return impl_->first_rank;
}
Engine World::engine() const {
  return impl_->group->kind() == engine::Kind::cpu ? Engine::cpu : Engine::cuda;
}
Stream World::main_stream(int rank) const {
  return Stream(rank_of(*impl_, rank).main);
}
Stream World::side_stream(int rank) const {
  return Stream(rank_of(*impl_, rank).side);
}

std::vector<TailBox> World::make_boxes(const Shape& shape) const {
  const auto check = [&] {
    runtime::check_shape(shape);
    if (shape.ranks != ranks())
      base::bad_argument("shape.ranks", shape.ranks, fmt::format("{}, as in this world", ranks()));
    runtime::check_not_capturing(*impl_->ranks.front().main->stream, "make_boxes");
  };
  const auto family = std::make_shared<const int>(impl_->families.fetch_add(1) + 1);
  std::vector<std::unique_ptr<engine::Box>> made;
  if (impl_->processes) {
    made = impl_->processes->make_boxes(static_cast<cpu::Group&>(*impl_->group), *family, shape, check);
  } else {
    check();
    made = impl_->group->make_boxes(shape);
  }
  std::vector<TailBox> boxes;
  for (std::size_t i = 0; i < made.size(); ++i) {
    auto box = std::make_shared<TailBox::Impl>();
    box->world = impl_;
    box->family = family;
    box->shape = shape;
    box->rank = made[i]->view().rank;
    box->box = std::move(made[i]);
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
    const auto index = static_cast<std::size_t>(box.rank - impl_->first_rank);
    if (seen[index]) base::bad_argument("calls: rank", box.rank, "each local rank once");
    seen[index] = true;
    if (call.call.batch != calls[0].call.batch)
      base::bad_argument(fmt::format("batch of rank {}", box.rank), call.call.batch,
                         fmt::format("{}, the same on all ranks", calls[0].call.batch));
    if (box.family != calls[0].tail->impl()->box.impl()->family)
      base::bad_argument(fmt::format("box of rank {}", box.rank), static_cast<const void*>(&box),
                         "boxes that one make_boxes returned");
    runtime::check_run(runs.back());
    if (runs.back().mode != runs[0].mode)
      base::bad_argument(fmt::format("mode of rank {}", box.rank), protocol::mode_name(runs.back().mode),
                         fmt::format("{}, the same on all ranks", protocol::mode_name(runs[0].mode)));
  }
  return runtime::enqueue_runs(runs);
}

void World::synchronize() const {
  wait_for_streams(*impl_, "synchronize");
  impl_->group->collect_trace();
  std::optional<protocol::FaultRecord> first;
  {
    std::lock_guard lock(impl_->mutex);
    for (const auto& weak : impl_->boxes) {
      const auto box = weak.lock();
      const auto record = box ? box->box->fault() : std::nullopt;
      // Whoever found out by poison only repeats what another rank knows better.
      if (record && (!first || first->kind == protocol::FaultKind::poisoned)) first = record;
    }
  }
  if (first)
    base::fail(Code::fault, "{}; the box is poisoned until World::recover", FaultReport{*first}.text());
}

void World::recover(std::span<TailBox> boxes) const {
  const auto come_to_rest = [&] {
    if (boxes.size() != static_cast<std::size_t>(local_ranks()))
      base::bad_argument("boxes: size", boxes.size(),
                         fmt::format("{}, all boxes of one make_boxes", local_ranks()));
    std::vector<bool> seen(boxes.size(), false);
    for (const TailBox& box : boxes) {
      if (box.impl()->family != boxes[0].impl()->family || box.impl()->world != impl_)
        base::bad_argument(fmt::format("boxes: rank {}", box.rank()),
                           static_cast<const void*>(box.impl().get()),
                           "boxes that one make_boxes of this world returned");
      const auto index = static_cast<std::size_t>(box.rank() - impl_->first_rank);
      if (seen[index]) base::bad_argument("boxes: rank", box.rank(), "each local rank once");
      seen[index] = true;
    }
    wait_for_streams(*impl_, "recover");
  };
  const auto arm = [&] {
    for (TailBox& box : boxes) {
      const runtime::CallTracker::Use use(box.impl()->tracker, box.rank());
      box.impl()->box->arm();
      box.impl()->tracker.reset();
    }
  };
  if (impl_->processes) {
    impl_->processes->recover(boxes.empty() ? 0 : *boxes[0].impl()->family, come_to_rest, arm);
  } else {
    come_to_rest();
    arm();
  }
}

}  // namespace moetail
