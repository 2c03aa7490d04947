// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/box_group.hpp"

#include <algorithm>
#include <exception>
#include <functional>
#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "engine/cuda/planned.hpp"

namespace moetail::cuda {
namespace {

using engine::TailCall;
using kernels::Kind;

/// A rank's handle of a stream that it may share with the other ranks of the device.
class RankStream final : public engine::Stream {
 public:
  RankStream(std::shared_ptr<cuda::Stream> stream_in, std::string name)
      : stream(std::move(stream_in)), name_(std::move(name)) {}

  void call(std::function<void()> work) override {
    // A replay would run the work again, after it is gone.
    if (is_capturing())
      base::fail(
          Code::call_order,
          "launch: stream {} is capturing: accepted is a kernel on the native stream; host work cannot "
          "be captured",
          name_);
    auto task = std::make_unique<Task>(Task{std::move(work), errors_});
    stream->call(
        [](void* data) {
          const std::unique_ptr<Task> owned(static_cast<Task*>(data));
          owned->run();
        },
        task.get());
    static_cast<void>(task.release());  // the driver's thread owns it now
  }
  void join(engine::Stream& other) override {
    const cuda::Stream& from = *static_cast<RankStream&>(other).stream;
    if (from.handle() != stream->handle()) stream->join(from);
  }
  void synchronize() override {
    stream->synchronize();
    errors_->rethrow();
  }
  void drain() noexcept override {
    try {
      stream->synchronize();
    } catch (...) {
      errors_->keep(std::current_exception());
    }
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) stream->copy(to, from, bytes);
  }
  const std::string& name() const override { return name_; }
  void* native() const override { return stream->handle(); }
  bool is_capturing() const override { return stream->is_capturing(); }

  const std::shared_ptr<cuda::Stream> stream;

 private:
  /// The first exception that host work left.
  struct Errors {
    void keep(std::exception_ptr error) {
      const std::lock_guard lock(mutex);
      if (!first) first = std::move(error);
    }
    void rethrow() {
      const std::lock_guard lock(mutex);
      if (first) std::rethrow_exception(std::exchange(first, nullptr));
    }
    std::mutex mutex;
    std::exception_ptr first;
  };
  struct Task {
    void run() const noexcept {
      try {
        work();
      } catch (...) {
        errors->keep(std::current_exception());
      }
    }
    std::function<void()> work;
    std::shared_ptr<Errors> errors;
  };

  std::string name_;
  std::shared_ptr<Errors> errors_ = std::make_shared<Errors>();
};

const Stream& stream_of(const engine::Stream& stream) {
  return *static_cast<const RankStream&>(stream).stream;
}
Box& box_of(engine::Box* box) {
  return static_cast<Box&>(*box);
}

/// One launch serves all ranks, so that what a kernel is compiled for has to be the same on all of them.
void check_alike(std::span<const engine::RankTail> tails) {
  const TailCall& first = tails.front().call;
  for (const auto& [box, stream, call] : tails) {
    if (call.routed.form != first.routed.form)
      base::bad_argument("routed.form", static_cast<int>(call.routed.form),
                         "the same on all ranks of one device");
    if (call.routed.weight_type != first.routed.weight_type)
      base::bad_argument("routed weights", "bf16 on some ranks, fp32 on others",
                         "one type on all ranks of one device");
    if (call.in_one_launch != first.in_one_launch)
      base::fail(Code::call_order,
                 "run: a push for this call on some ranks only: accepted is a push on all ranks of one "
                 "device, or on none");
    if ((call.residual != nullptr) != (first.residual != nullptr))
      base::bad_argument("residual", "given on some ranks only", "on all ranks of one device, or on none");
  }
}

}  // namespace

Box::Box(Group& group, int rank, std::shared_ptr<BoxKernels> kernels)
    : engine::Box(engine::Kind::cuda),
      group_(group),
      rank_(rank),
      kernels_(std::move(kernels)),
      memory_(group.context(), protocol::make_layout(kernels_->shape())),
      trace_slots_(group.make_trace_slots(rank)) {
  if (!group.is_replay()) return;
  scratch_ = DeviceMemory(group.context(), memory_.layout().total_bytes);
  view_.layout = memory_.layout();
  view_.rank = rank;
  for (int peer = 0; peer < view_.ranks(); ++peer)
    view_.peer[peer] = peer == rank ? memory_.device() : scratch_.as<protocol::u8>();
}

void Box::arm() {
  if (scratch_) group_.main().fill(scratch_.address(), 0, scratch_.bytes() / sizeof(protocol::u32));
  memory_.arm(group_.main());
  group_.main().synchronize();
}

void Box::check_address(const char* name, const void* address) const {
  if (address == nullptr || is_device_address(*group_.context(), address)) return;
  base::bad_argument(name, address, "memory that the device can address: its own, or pinned host memory");
}

protocol::LaunchLink Box::link() const {
  protocol::LaunchLink link;
  link.fault = memory_.fault_cell();
  link.rearm_others = scratch_ ? scratch_.as<protocol::u8>() : view_.peer[rank_];
  link.deadline_ns = static_cast<protocol::u64>(group_.options().deadline.count());
  link.first_deadline_ns = static_cast<protocol::u64>(group_.options().first_deadline.count());
  link.layer = layer_;
  link.puts_own = group_.put() == kernels::PutBy::own;
  return link;
}

kernels::RankArgs Box::args(const TailCall& call) const {
  const protocol::LaunchLink to = link();
  kernels::RankArgs args;
  for (int peer = 0; peer < view_.ranks(); ++peer) args.peer[peer] = view_.peer[peer];
  args.rearm_others = to.rearm_others;
  args.fault = to.fault;
  args.deadline_ns = to.deadline_ns;
  args.first_deadline_ns = to.first_deadline_ns;
  args.rank = rank_;
  args.call.rows = call.routed.rows;
  args.call.map = call.routed.map;
  args.call.weights = call.routed.weights;
  args.call.partial = call.routed.partial;
  args.call.shared = call.shared;
  args.call.residual = call.residual;
  args.call.shard = call.shard;
  args.call.norm = call.norm;
  args.call.num_rows = call.routed.num_rows;
  args.call.layer = call.layer;
  if (trace_slots_ != nullptr)
    args.call.destination = reinterpret_cast<kernels::u16*>(trace_slots_->device());
  return args;
}

void Box::launch(Kind kind, engine::Stream& stream, const TailCall& call, engine::u16* destination) {
  const BoxKernels::Ready& ready = kernels_->get(kind, call, 1, stream_of(stream));
  kernels::RankArgs rank = args(call);
  if (kind == Kind::take) rank.call.destination = destination;
  BoxKernels::launch(ready, stream_of(stream), call.batch, {&rank, 1});
}

int Box::warm_up(const TailCall& call) {
  const Stream& on = group_.main();
  const bool is_published = call.routed.form == Form::published;
  std::vector<BoxKernels::Wanted> wanted = {{tail_kind(call), group_.is_replay() ? 1 : view_.ranks()},
                                            {Kind::take, 1}};
  if (tail_kind(call) == Kind::wave) {
    wanted.push_back({Kind::push, 1});
    if (!is_published) wanted.push_back({Kind::publish, 1});
  }
  if (call.mode == Mode::front_poll && call.polls_slots && !is_published) wanted.push_back({Kind::fill, 1});
  kernels_->get_all(wanted, call, on);
  if (call.mode == Mode::twoshot && !is_published) {
    // Whether a call will have been pushed is not known yet.
    TailCall whole = call;
    whole.in_one_launch = true;
    kernels_->get(tail_kind(whole), whole, wanted.front().launch_ranks, on);
    return static_cast<int>(wanted.size()) + 1;
  }
  if (tail_kind(call) != Kind::wave || !is_published) return static_cast<int>(wanted.size());
  kernels_->publish_rows(on);
  return static_cast<int>(wanted.size()) + 1;
}

void Box::prepare_push(const engine::Stream& main, const TailCall& call) {
  kernels_->get(Kind::push, call, 1, stream_of(main));
}

void Box::push(engine::Stream& stream, const TailCall& call) {
  launch(Kind::push, stream, call);
}
void Box::publish(engine::Stream& stream, const TailCall& call) {
  launch(Kind::publish, stream, call);
}
void Box::publish_rows(engine::Stream& stream, const PublishTargets& targets, const engine::u16* rows) {
  BoxKernels::Ready ready = kernels_->publish_rows(stream_of(stream));
  const unsigned lines =
      static_cast<unsigned>(targets.batch * view_.layout.shape.latent / protocol::kLineColumns);
  const unsigned most = 2 * static_cast<unsigned>(group_.context()->facts().num_sms);
  ready.launch.grid = std::clamp((lines + ready.launch.threads - 1) / ready.launch.threads, 1u, most);
  ready.kernel->launch_with(ready.launch, stream_of(stream), targets, rows);
}
void Box::fill(engine::Stream& stream, const TailCall& call) {
  launch(Kind::fill, stream, call);
}
void Box::take(engine::Stream& stream, int batch, engine::u16* destination) {
  TailCall call;
  call.batch = batch;
  call.layer = layer_;
  launch(Kind::take, stream, call, destination);
}

Group::Group(const GroupOptions& options)
    : options_(options),
      context_(options.context ? options.context : Context::retain()),
      store_(std::make_shared<KernelStore>(context_,
                                           options.cache ? options.cache : std::make_shared<KernelCache>())),
      device_(device_shape_of(context_)),
      main_(options.main_stream != nullptr
                ? std::make_shared<Stream>(Stream::borrow(context_, options.main_stream))
                : std::make_shared<Stream>(context_)),
      side_(std::make_shared<Stream>(context_)) {}

std::unique_ptr<engine::Stream> Group::make_stream(int rank, engine::StreamRole role) {
  const bool is_main = role == engine::StreamRole::main;
  return std::make_unique<RankStream>(is_main ? main_ : side_,
                                      fmt::format("rank{}.{}", rank, is_main ? "main" : "side"));
}

std::shared_ptr<BoxKernels> Group::make_kernels(const protocol::Shape& shape, int ranks) const {
  return std::make_shared<BoxKernels>(store_, device_, shape, ranks, put(), options_.trace != nullptr);
}

std::vector<std::unique_ptr<engine::Box>> Group::make_boxes(const protocol::Shape& shape) {
  if (is_replay()) {
    std::vector<std::unique_ptr<engine::Box>> only;
    only.push_back(std::make_unique<Box>(*this, options_.replay_rank, make_kernels(shape, 1)));
    only.front()->arm();
    return only;
  }
  const auto kernels = make_kernels(shape, options_.ranks);
  std::vector<std::unique_ptr<engine::Box>> boxes;
  std::vector<const BoxMemory*> memories;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    auto box = std::make_unique<Box>(*this, rank, kernels);
    memories.push_back(&box->memory());
    boxes.push_back(std::move(box));
  }
  for (const auto& box : boxes) {
    box_of(box.get()).set_peers(memories);
    box->arm();
  }
  return boxes;
}

void Group::prepare(std::span<const engine::RankTail> tails) {
  check_alike(tails);
  const auto& [box, stream, call] = tails.front();
  const bool is_published = call.routed.form == Form::published;
  // The take comes next, and is too late to refuse.
  std::vector<BoxKernels::Wanted> wanted = {{tail_kind(call), static_cast<int>(tails.size())},
                                            {Kind::take, 1}};
  if (tail_kind(call) == Kind::wave && !is_published) wanted.push_back({Kind::publish, 1});
  if (call.mode == Mode::front_poll && !is_published && call.polls_slots) wanted.push_back({Kind::fill, 1});
  box_of(box).kernels().get_all(wanted, call, stream_of(*stream));
}

void Group::tail(std::span<const engine::RankTail> tails) {
  const auto& [box, stream, call] = tails.front();
  const Stream& on = stream_of(*stream);
  // A group that spins can fill the device: what it waits for has to be over before it starts. A side stream that is no part of the capture
  // has nothing of this call, and must not be drawn into it from outside.
  if (tails.size() > 1 && (!on.is_capturing() || side_->is_capturing())) on.join(*side_);
  const BoxKernels::Ready& ready =
      box_of(box).kernels().get(tail_kind(call), call, static_cast<int>(tails.size()), on);
  std::vector<kernels::RankArgs> ranks(tails.size());
  for (const auto& tail : tails) {
    Box& own = box_of(tail.box);
    own.set_layer(tail.call.layer);
    ranks[is_replay() ? 0 : static_cast<std::size_t>(own.view().rank)] = own.args(tail.call);
  }
  BoxKernels::launch(ready, on, call.batch, ranks);
}

std::shared_ptr<TraceSlots> Group::make_trace_slots(int rank) {
  if (options_.trace == nullptr) return nullptr;
  auto slots = std::make_shared<TraceSlots>(context_, *main_, rank);
  const std::lock_guard lock(traced_mutex_);
  std::erase_if(traced_, [](const auto& weak) { return weak.expired(); });
  traced_.push_back(slots);
  return slots;
}

void Group::collect_trace() {
  const std::lock_guard lock(traced_mutex_);
  std::vector<TracedRank> ranks;
  for (const auto& slots : traced_)
    if (const auto alive = slots.lock()) ranks.push_back(alive->take(*main_));
  if (std::ranges::all_of(ranks, [](const TracedRank& rank) { return rank.slots.empty(); })) return;
  TracedSpans traced = spans_of(ranks);
  options_.trace->add_device(traced.origin_ns, std::move(traced.spans));
}

std::shared_ptr<void> Group::allocate(int, std::size_t bytes) {
  const auto memory = std::make_shared<DeviceMemory>(context_, std::max<std::size_t>(bytes, 1));
  return {memory, memory->as<void>()};
}

}  // namespace moetail::cuda
