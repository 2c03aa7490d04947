// SPDX-License-Identifier: Apache-2.0
// PreparedTail: from a checked call to the launches that serve it. Routed and TailWeights, its two value types.
#include "base/error.hpp"
#include "protocol/order.hpp"
#include "runtime/impl.hpp"

namespace moetail {
namespace {

using runtime::CallTracker;

void check_weights(const Shape& shape, int rank, std::span<const Bf16> matrix, const char* name, int rows,
                   std::span<const Bf16> norm) {
  runtime::check_shape(shape);
  if (rank < 0 || rank >= shape.ranks)
    base::bad_argument("rank", rank, fmt::format("0 to {}", shape.ranks - 1));
  const auto latent = static_cast<std::size_t>(shape.latent);
  runtime::check_buffer(name, matrix.data(), matrix.size(), static_cast<std::size_t>(rows) * latent, 16);
  runtime::check_buffer("norm", norm.data(), norm.size(), latent, 16);
}

bool is_pushed_mode(Mode mode) {
  return mode == Mode::publish || mode == Mode::twoshot;
}

std::size_t elements(int batch, int columns) {
  return static_cast<std::size_t>(batch) * static_cast<std::size_t>(columns);
}

engine::TailCall tail_call(const PreparedTail::Impl& tail, const Call& call, Mode mode) {
  const auto& box = *tail.box.impl();
  engine::TailCall launch;
  launch.mode = mode;
  launch.batch = call.batch;
  launch.layer = tail.layer;
  runtime::apply_policy(launch, box.world->policy, box.shape.ranks);
  launch.routed = runtime::routed_input(call.routed, box.shape);
  launch.shared = call.shared.empty() ? box.tracker.remembered_shared() : call.shared.data();
  launch.residual = call.residual.empty() ? nullptr : call.residual.data();
  launch.shard = tail.weights.shard();
  launch.norm = tail.weights.norm();
  if (mode == Mode::front_poll) {
    const bool rows_given = call.routed.form == Form::expanded || call.routed.form == Form::permuted;
    launch.polls_slots = call.routed.form != Form::partial;
    launch.polls_shared = rows_given || launch.shared == nullptr;
  }
  launch.early = call.early && is_pushed_mode(mode);
  launch.in_one_launch =
      mode == Mode::twoshot && call.routed.form != Form::published && !box.tracker.is_pushed();
  return launch;
}

}  // namespace

Routed Routed::expanded(std::span<const Bf16> rows, std::span<const Bf16> weights) {
  return {Form::expanded, rows, {}, weights, {}, {}};
}
Routed Routed::expanded(std::span<const Bf16> rows, std::span<const float> weights) {
  return {Form::expanded, rows, {}, {}, weights, {}};
}
Routed Routed::permuted(std::span<const Bf16> rows, std::span<const std::int32_t> map,
                        std::span<const Bf16> weights) {
  return {Form::permuted, rows, map, weights, {}, {}};
}
Routed Routed::permuted(std::span<const Bf16> rows, std::span<const std::int32_t> map,
                        std::span<const float> weights) {
  return {Form::permuted, rows, map, {}, weights, {}};
}
Routed Routed::finalized(std::span<const Bf16> partial) {
  return {Form::partial, {}, {}, {}, {}, partial};
}
Routed Routed::published() {
  return {};
}

TailWeights TailWeights::from_full(const Shape& shape, int rank, std::span<const Bf16> up_proj,
                                   std::span<const Bf16> norm) {
  check_weights(shape, rank, up_proj, "up_proj", shape.hidden, norm);
  return {shape, rank, up_proj.data() + elements(rank * shape.shard(), shape.latent), norm.data()};
}

TailWeights TailWeights::from_shard(const Shape& shape, int rank, std::span<const Bf16> shard,
                                    std::span<const Bf16> norm) {
  check_weights(shape, rank, shard, "shard", shape.hidden / std::max(1, shape.ranks), norm);
  return {shape, rank, shard.data(), norm.data()};
}

PreparedTail::PreparedTail(const TailBox& box, const TailWeights& weights, int layer) {
  if (layer < 0 || layer > 65535) base::bad_argument("layer", layer, "0 to 65535");
  if (weights.rank() != box.rank())
    base::bad_argument("weights: rank", weights.rank(), fmt::format("{}, the box's", box.rank()));
  const Shape &a = weights.shape(), &b = box.shape();
  if (a.hidden != b.hidden || a.latent != b.latent || a.ranks != b.ranks)
    base::bad_argument("weights: hidden x latent / ranks",
                       fmt::format("{} x {} / {}", a.hidden, a.latent, a.ranks),
                       fmt::format("{} x {} / {}, the box's", b.hidden, b.latent, b.ranks));
  box.impl()->box->check_address("weights", weights.shard());
  box.impl()->box->check_address("norm", weights.norm());
  impl_ = std::make_shared<Impl>(Impl{box, weights, layer});
}

void PreparedTail::push(std::span<const Bf16> shared, int batch, Mode mode, const Stream& stream) const {
  auto& box = *impl_->box.impl();
  const CallTracker::Use use(box.tracker, box.rank);
  runtime::check_no_fault(box);
  runtime::check_batch(box.shape, batch);
  if (batch == 0) return;
  runtime::check_buffer("shared", shared.data(), shared.size(), elements(batch, box.shape.hidden), 16);
  box.box->check_address("shared", shared.data());
  const auto& side = box.rank_resources().side;
  const bool on_side = stream && stream.impl() == side;
  const auto main = runtime::check_main_stream(box, on_side ? Stream() : stream, "push");
  const Mode resolved = runtime::resolve_mode(mode, box.shape, batch, box.world->policy);
  const Mode fixed = box.tracker.check_open("push", impl_.get(), batch, mode, resolved);
  if (is_pushed_mode(fixed) && box.tracker.is_pushed())
    base::fail(Code::call_order,
               "push: this call's shared partial is pushed already: accepted is one push a call");
  // The launch first: a kernel that is missing under capture is refused while the box is as it was.
  if (is_pushed_mode(fixed)) {
    Call call;
    call.batch = batch;
    call.shared = shared;
    const engine::TailCall launch = tail_call(*impl_, call, fixed);
    box.box->prepare_push(*main->stream, launch);
    if (on_side && protocol::kLaunchOrder.push_after_consumer) side->stream->join(*main->stream);
    box.box->push(on_side ? *side->stream : *main->stream, launch);
  }
  box.tracker.open("push", impl_.get(), batch, mode, resolved);
  box.tracker.remember_shared(shared.data());
  if (is_pushed_mode(fixed)) box.tracker.set_pushed(on_side);
}

PublishTargets PreparedTail::publish(int batch, Mode mode) const {
  auto& box = *impl_->box.impl();
  const CallTracker::Use use(box.tracker, box.rank);
  runtime::check_no_fault(box);
  runtime::check_batch(box.shape, batch);
  // Whoever asks for destinations wants to publish: left to the policy, a first publish opens a publish call at any batch.
  if (mode == Mode::automatic && !box.tracker.is_open()) mode = Mode::publish;
  const Mode resolved = runtime::resolve_mode(mode, box.shape, batch, box.world->policy);
  const Mode fixed = box.tracker.check_open("publish", impl_.get(), batch, mode, resolved);
  if (!is_pushed_mode(fixed))
    base::fail(Code::call_order, "publish: mode = {}: accepted is publish or twoshot",
               protocol::mode_name(fixed));
  if (batch > 0) box.tracker.open("publish", impl_.get(), batch, mode, resolved);
  return {box.box->view(), box.box.get(), batch, fixed == Mode::twoshot, box.box->link()};
}

std::optional<PollSlots> PreparedTail::poll_slots(int batch, Mode mode) const {
  auto& box = *impl_->box.impl();
  const CallTracker::Use use(box.tracker, box.rank);
  runtime::check_no_fault(box);
  runtime::check_batch(box.shape, batch);
  if (mode == Mode::automatic && !box.tracker.is_open())
    mode = batch > box.shape.poll_capacity ? Mode::front : Mode::front_poll;
  const Mode resolved = runtime::resolve_mode(mode, box.shape, batch, box.world->policy);
  const Mode fixed = box.tracker.check_open("poll_slots", impl_.get(), batch, mode, resolved);
  if (is_pushed_mode(fixed))
    base::fail(Code::call_order, "poll_slots: mode = {}: accepted is front_poll or front",
               protocol::mode_name(fixed));
  if (batch > 0) box.tracker.open("poll_slots", impl_.get(), batch, mode, resolved);
  if (fixed == Mode::front) return std::nullopt;
  return PollSlots{box.box->view(), box.box.get(), batch, box.box->link()};
}

OutView PreparedTail::run(const Call& call) const {
  const auto& world = *impl_->box.impl()->world;
  if (world.ranks.size() != 1)
    base::fail(Code::call_order,
               "run: a world with {} ranks in this process: accepted is World::run over all of them",
               world.ranks.size());
  runtime::RankRun run{"run", impl_, call};
  runtime::check_run(run);
  return runtime::enqueue_runs({&run, 1}).front();
}

namespace runtime {

void check_run(RankRun& run) {
  auto& box = *run.tail->box.impl();
  const CallTracker::Use use(box.tracker, box.rank);
  const Call& call = run.call;
  check_no_fault(box);
  check_batch(box.shape, call.batch);
  check_main_stream(box, call.stream, run.what);
  const Mode resolved = resolve_mode(call.mode, box.shape, call.batch, box.world->policy);
  run.mode = box.tracker.check_open(run.what, run.tail.get(), call.batch, call.mode, resolved);
  if (call.batch == 0) return;
  check_routed(call.routed, box.shape, call.batch);
  const std::size_t rows = elements(call.batch, box.shape.hidden);
  if (!call.residual.empty()) check_buffer("residual", call.residual.data(), call.residual.size(), rows, 16);
  if (!call.shared.empty()) check_buffer("shared", call.shared.data(), call.shared.size(), rows, 16);
  if (call.routed.form != Form::published) check_addresses(*box.box, call.routed);
  box.box->check_address("shared", call.shared.data());
  box.box->check_address("residual", call.residual.data());
  const auto* remembered = box.tracker.remembered_shared();
  const bool has_shared = !call.shared.empty() || remembered != nullptr;
  if (remembered != nullptr && !call.shared.empty() && call.shared.data() != remembered)
    base::bad_argument("shared", static_cast<const void*>(call.shared.data()),
                       "empty, or the buffer given to push");
  // A two-shot tail that is given rows needs no other launch.
  const bool is_whole = run.mode == Mode::twoshot && call.routed.form != Form::published;
  if (is_pushed_mode(run.mode) && !is_whole && !box.tracker.is_pushed())
    base::fail(Code::call_order, "{}: mode = {} without a push for this call: accepted is push first",
               run.what, protocol::mode_name(run.mode));
  if (run.mode == Mode::front && call.routed.form == Form::published)
    base::bad_argument("routed.form", "published", "rows, permuted or partial in front mode");
  const bool rows_given = call.routed.form == Form::expanded || call.routed.form == Form::permuted;
  if (!has_shared && (run.mode == Mode::front || is_whole || (run.mode == Mode::front_poll && rows_given)))
    base::bad_argument("shared", "empty",
                       fmt::format("[B, H] bf16 in {} mode", protocol::mode_name(run.mode)));
}

std::vector<OutView> enqueue_runs(std::span<const RankRun> runs) {
  std::vector<OutView> views;
  std::vector<engine::RankTail> tails;
  std::vector<std::unique_ptr<CallTracker::Use>> uses;
  for (const RankRun& run : runs) {
    auto& box = *run.tail->box.impl();
    uses.push_back(std::make_unique<CallTracker::Use>(box.tracker, box.rank));
    const auto* const rows = box.box->view().mine<protocol::Line>(protocol::Region::out, 0, 0, 0);
    views.push_back(
        {reinterpret_cast<const Bf16*>(rows), run.call.batch, box.shape.hidden, box.rank, 0, &box});
  }
  if (runs.front().call.batch == 0) return views;
  for (const RankRun& run : runs) {
    auto& box = *run.tail->box.impl();
    engine::Stream& main = *check_main_stream(box, run.call.stream, run.what)->stream;
    tails.push_back({box.box.get(), &main, tail_call(*run.tail, run.call, run.mode)});
  }
  engine::Group& group = *runs.front().tail->box.impl()->world->group;
  group.prepare(tails);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto& [box, main, call] = tails[i];
    runs[i].tail->box.impl()->tracker.open(runs[i].what, runs[i].tail.get(), call.batch, runs[i].call.mode,
                                           call.mode);
    if (call.routed.form == Form::published) continue;
    const bool by_tail = call.in_one_launch && group.has_one_launch();
    if (call.in_one_launch && !by_tail) box->push(*main, call);
    if (is_pushed_mode(call.mode) && !by_tail) box->publish(*main, call);
    if (call.mode == Mode::front_poll && call.polls_slots) box->fill(*main, call);
  }
  group.tail(tails);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    auto& box = *runs[i].tail->box.impl();
    // What the side stream reads of this call has been read before anything later runs on the main stream.
    if (is_pushed_mode(runs[i].mode) && box.tracker.is_pushed_on_side())
      tails[i].stream->join(*box.rank_resources().side->stream);
    views[i].call = box.tracker.close();
  }
  return views;
}

}  // namespace runtime
}  // namespace moetail
