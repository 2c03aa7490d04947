// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/group.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "base/error.hpp"

namespace moetail::cpu {
namespace {

// Ranks outnumber cores as soon as two waiting threads can keep a third from running.
constexpr int kSpinsWithCoresToSpare = 4096;
constexpr int kSpinsWhenCrowded = 32;
constexpr std::size_t kBufferAlignment = 256;
// A call's label where it is that of the box's latest tail, which only the main stream's thread may look at.
constexpr int kLayerOfTheBox = -1;

int num_cores() {
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

class RankStream final : public engine::Stream {
 public:
  RankStream(std::string name, engine::StreamRole role_in) : role(role_in), thread(std::move(name)) {}

  void call(std::function<void()> work) override { thread.enqueue(std::move(work)); }
  void join(engine::Stream& other) override { thread.join(static_cast<RankStream&>(other).thread); }
  void synchronize() override { thread.synchronize(); }
  void drain() noexcept override { thread.drain(); }
  void copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) thread.enqueue([to, from, bytes] { std::memcpy(to, from, bytes); });
  }
  const std::string& name() const override { return thread.name(); }

  const engine::StreamRole role;
  StreamThread thread;
};

}  // namespace

void Box::arm() {
  HostMemory memory;
  protocol::arm_box(memory, state_.view);
  state_.stop.store(false);
  state_.fault.clear();
}

void Box::abort() {
  abort_waits(state_);
}

void Box::fill_peers(int, Mode, std::span<const engine::SentRows>) {
  base::fail(Code::unsupported, "fill_peers: a box of the CPU engine: accepted is a box of World::replay");
}

void Box::launch(engine::Stream& stream, Kernel kernel, const TailCall& call) {
  auto& rank_stream = static_cast<RankStream&>(stream);
  const bool on_main = rank_stream.role == engine::StreamRole::main;
  rank_stream.thread.enqueue([this, kernel, call = TailCall(call), on_main]() mutable {
    // The box's label is the main stream's own: what else runs has none.
    if (call.layer == kLayerOfTheBox) call.layer = on_main ? state_.layer : 0;
    const auto cluster_part = [&](int index, int count) {
      Cluster cluster(state_, index, count, call.layer);
      try {
        kernel(cluster, call);
      } catch (const std::bad_alloc&) {  // a launch's scratch rows; its peers would wait for it
        cluster.raise(protocol::FaultKind::no_memory, protocol::Spot{cluster.site()});
      }
      cluster.mark(nullptr);
    };
    // The team belongs to the main stream; a side stream's launch is one cluster on the stream's own thread.
    if (!on_main) return cluster_part(0, 1);
    state_.layer = call.layer;
    team_.run([&](int index) { cluster_part(index, team_.clusters()); });
  });
}

void Box::push(engine::Stream& stream, const TailCall& call) {
  launch(stream, push_shared, call);
}
void Box::publish(engine::Stream& stream, const TailCall& call) {
  launch(stream, publish_partials, call);
}
void Box::publish_rows(engine::Stream& stream, const PublishTargets& targets, const u16* rows) {
  TailCall call;
  call.mode = targets.twoshot ? Mode::twoshot : Mode::publish;
  call.batch = targets.batch;
  call.layer = kLayerOfTheBox;
  call.routed.form = Form::partial;
  call.routed.partial = rows;
  launch(stream, publish_partials, call);
}
void Box::fill(engine::Stream& stream, const TailCall& call) {
  launch(stream, fill_slots, call);
}
void Box::tail(engine::Stream& stream, const TailCall& call) {
  const bool is_wave = call.mode == Mode::publish || call.mode == Mode::twoshot;
  launch(stream, is_wave ? wave_tail : front_tail, call);
}

void Box::take(engine::Stream& stream, int batch, u16* destination) {
  static_cast<RankStream&>(stream).thread.enqueue([this, batch, destination] {
    Cluster cluster(state_, 0, 1, state_.layer, Cluster::Serves::last_call);
    take_rows(cluster, batch, destination);
    cluster.mark(nullptr);
  });
}

BoxState& state_of(engine::Box& box) {
  return static_cast<Box&>(box).state();
}

Group::Group(const GroupOptions& options) : options_(options) {
  const int threads = options.threads > 0 ? options.threads : num_cores();
  for (int rank = 0; rank < options.local_ranks; ++rank)
    teams_.push_back(std::make_unique<Team>(std::max(1, threads / options.ranks)));
}

std::unique_ptr<engine::Stream> Group::make_stream(int rank, engine::StreamRole role) {
  return std::make_unique<RankStream>(
      fmt::format("rank{}.{}", rank, role == engine::StreamRole::main ? "main" : "side"), role);
}

std::vector<std::unique_ptr<engine::Box>> Group::make_boxes(const protocol::Shape& shape) {
  return make_boxes_in(options_.make_mailboxes(protocol::make_layout(shape)));
}

std::vector<std::unique_ptr<engine::Box>> Group::make_boxes_in(const Mailboxes& mailboxes) {
  const bool crowded = options_.ranks * teams_.front()->clusters() > num_cores();
  std::vector<std::unique_ptr<engine::Box>> boxes;
  for (std::size_t index = 0; index < teams_.size(); ++index) {
    auto box = std::make_unique<Box>(mailboxes.owner, *teams_[index]);
    BoxState& state = box->state();
    state.view = mailboxes.views[index];
    state.deadline = options_.deadline;
    state.first_deadline = options_.first_deadline;
    state.trace = options_.trace.get();
    state.spins_before_park = crowded ? kSpinsWhenCrowded : kSpinsWithCoresToSpare;
    box->arm();
    boxes.push_back(std::move(box));
  }
  return boxes;
}

void Group::tail(std::span<const engine::RankTail> tails) {
  for (const auto& [box, stream, call] : tails) static_cast<Box*>(box)->tail(*stream, call);
}

std::shared_ptr<void> Group::allocate(int, std::size_t bytes) {
  const std::size_t rounded =
      (std::max<std::size_t>(bytes, 1) + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
  void* const memory = std::aligned_alloc(kBufferAlignment, rounded);
  if (memory == nullptr) base::fail(Code::resource, "a buffer of {} bytes: out of memory", bytes);
  return {memory, std::free};
}

}  // namespace moetail::cpu
