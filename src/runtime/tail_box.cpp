// SPDX-License-Identifier: Apache-2.0
// TailBox: the consumer's side and the health of a rank's mailboxes; and the functions for a user's own code on a stream.
#include "base/error.hpp"
#include "engine/cpu/group.hpp"
#include "runtime/impl.hpp"

namespace moetail {
namespace {

using runtime::CallTracker;
using Serves = cpu::Cluster::Serves;

void check_view(const TailBox::Impl& box, const OutView& view) {
  if (view.box != &box)
    base::bad_argument("view: box", view.box,
                       fmt::format("a view that a run on rank {}'s box returned", box.rank));
}

/// The CPU engine's state of a box. `what` is the host function that only this engine has.
cpu::BoxState& state_of(const void* engine, const char* what) {
  if (engine == nullptr)
    base::bad_argument("engine", "null", "a struct that publish, poll_slots or consumer returned");
  auto& box = *static_cast<engine::Box*>(const_cast<void*>(engine));
  if (box.kind() != engine::Kind::cpu)
    base::fail(
        Code::unsupported,
        "{}: a box of the CUDA engine: accepted is a box of the CPU engine; on a GPU the user's own kernel "
        "calls the device function",
        what);
  return cpu::state_of(box);
}

void check_token(int token, int batch) {
  if (token < 0 || token >= batch) base::bad_argument("token", token, fmt::format("0 to {}", batch - 1));
}

void check_row(const char* name, std::span<const Bf16> row, int columns) {
  runtime::check_buffer(name, row.data(), row.size(), static_cast<std::size_t>(columns), 16);
}

void check_route(const PollSlots& slots, int token, int k) {
  check_token(token, slots.batch);
  const int top_k = slots.box.layout.shape.top_k;
  if (k < 0 || k >= top_k) base::bad_argument("k", k, fmt::format("0 to {}", top_k - 1));
}

}  // namespace

TailBox::Impl::~Impl() {
  rank_resources().main->stream->drain();
  rank_resources().side->stream->drain();
}

int TailBox::rank() const {
  return impl_->rank;
}
const Shape& TailBox::shape() const {
  return impl_->shape;
}
std::size_t TailBox::bytes() const {
  return impl_->box->view().layout.total_bytes;
}

void TailBox::take(const OutView& view, std::span<Bf16> destination, const Stream& stream) const {
  const CallTracker::Use use(impl_->tracker, impl_->rank);
  check_view(*impl_, view);
  if (view.call == 0) return;
  const auto main = runtime::check_main_stream(*impl_, stream, "take");
  runtime::check_buffer("destination", destination.data(), destination.size(),
                        static_cast<std::size_t>(view.batch) * static_cast<std::size_t>(view.hidden), 16);
  impl_->box->check_address("destination", destination.data());
  impl_->tracker.consume("take", view.call);
  impl_->box->take(*main->stream, view.batch, destination.data());
}

OutConsumer TailBox::consumer(const OutView& view, const Stream& stream) const {
  const CallTracker::Use use(impl_->tracker, impl_->rank);
  check_view(*impl_, view);
  runtime::check_main_stream(*impl_, stream, "consumer");
  if (view.call != 0) impl_->tracker.consume("consumer", view.call);
  return {impl_->box->view(), impl_->box.get(), view.batch, view.call, impl_->box->link()};
}

void TailBox::fill_peers(int batch, Mode mode, std::span<const SentRows> ranks) const {
  const CallTracker::Use use(impl_->tracker, impl_->rank);
  const Shape& shape = impl_->shape;
  runtime::check_not_capturing(*impl_->rank_resources().main->stream, "fill_peers");
  runtime::check_batch(shape, batch);
  if (batch == 0) base::bad_argument("batch", batch, fmt::format("1 to the capacity, {}", shape.capacity));
  if (mode == Mode::automatic) base::bad_argument("mode", "auto", "the mode of the calls that follow");
  runtime::resolve_mode(mode, shape, batch, impl_->world->policy);
  if (ranks.size() != static_cast<std::size_t>(shape.ranks))
    base::bad_argument("ranks: size", ranks.size(), fmt::format("{}, one for each rank", shape.ranks));
  const auto rows = static_cast<std::size_t>(batch);
  std::vector<engine::SentRows> sent;
  for (const SentRows& rank : ranks) {
    runtime::check_buffer("partial", rank.partial.data(), rank.partial.size(),
                          rows * static_cast<std::size_t>(shape.latent), alignof(Bf16));
    runtime::check_buffer("shared", rank.shared.data(), rank.shared.size(),
                          rows * static_cast<std::size_t>(shape.hidden), alignof(Bf16));
    sent.push_back({rank.partial.data(), rank.shared.data()});
  }
  impl_->box->fill_peers(batch, mode, sent);
}

int TailBox::warm_up(int batch, Mode mode, Form form, WeightType weights, bool residual, bool early) const {
  const CallTracker::Use use(impl_->tracker, impl_->rank);
  runtime::check_batch(impl_->shape, batch);
  if (batch == 0) return 0;
  static const Bf16 given = 0;  // only whether there is one counts
  const Policy& policy = impl_->world->policy;
  engine::TailCall call;
  call.mode = runtime::resolve_mode(mode, impl_->shape, batch, policy);
  call.batch = batch;
  runtime::apply_policy(call, policy, impl_->shape.ranks);
  call.routed.form = form;
  call.routed.weight_type = weights;
  call.shared = &given;
  call.residual = residual ? &given : nullptr;
  call.early = early && (call.mode == Mode::publish || call.mode == Mode::twoshot);
  if (call.mode == Mode::front_poll) {
    call.polls_slots = form != Form::partial;
    call.polls_shared = form == Form::expanded || form == Form::permuted;
  }
  return impl_->box->warm_up(call);
}

std::optional<FaultReport> TailBox::status() const {
  const auto record = impl_->box->fault();
  if (!record) return std::nullopt;
  return FaultReport{*record};
}

void TailBox::abort() const {
  impl_->box->abort();
}

void publish_partial(const PublishTargets& targets, int token, std::span<const Bf16> row) {
  check_token(token, targets.batch);
  check_row("row", row, targets.box.layout.shape.latent);
  cpu::Cluster cluster(state_of(targets.engine, "publish_partial"), 0, 1, 0);
  cpu::publish_partial_row(cluster, targets.twoshot, token, row.data());
}

void fill_route(const PollSlots& slots, int token, int k, std::span<const Bf16> row, float weight) {
  check_route(slots, token, k);
  check_row("row", row, slots.box.layout.shape.latent);
  cpu::Cluster cluster(state_of(slots.engine, "fill_route"), 0, 1, 0);
  cpu::fill_route_row(cluster, token, k, row.data(), weight);
}

void fill_dropped_route(const PollSlots& slots, int token, int k) {
  check_route(slots, token, k);
  cpu::Cluster cluster(state_of(slots.engine, "fill_dropped_route"), 0, 1, 0);
  cpu::fill_dropped(cluster, token, k);
}

void fill_shared(const PollSlots& slots, int token, std::span<const Bf16> row) {
  check_token(token, slots.batch);
  check_row("row", row, slots.box.layout.shape.hidden);
  cpu::Cluster cluster(state_of(slots.engine, "fill_shared"), 0, 1, 0);
  cpu::fill_shared_row(cluster, token, row.data());
}

bool consume_row(const OutConsumer& consumer, int token, std::span<Bf16> row) {
  check_token(token, consumer.batch);
  check_row("row", row, consumer.box.layout.shape.hidden);
  cpu::BoxState& state = state_of(consumer.engine, "consume_row");
  cpu::Cluster cluster(state, 0, 1, state.layer, Serves::last_call);
  return cpu::consume_out_row(cluster, token, row.data());
}

}  // namespace moetail
