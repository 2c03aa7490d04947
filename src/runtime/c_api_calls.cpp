// SPDX-License-Identifier: Apache-2.0
// The C door: tails, calls, and what a caller's own producers and consumers call on a stream.
#include <cstring>
#include <type_traits>

#include "runtime/c_api_convert.hpp"
#include "runtime/c_api_handles.hpp"
#include "runtime/impl.hpp"

namespace c_api = moetail::c_api;
namespace base = moetail::base;
using moetail::Bf16;

namespace moetail::c_api {
namespace {

Routed routed_of(const moetail_call& call) {
  Routed routed;
  routed.form = form_of(call.form);
  routed.rows = buffer("rows", call.rows, call.rows_count);
  routed.map = buffer("map", call.map, call.map_count);
  routed.partial = buffer("partial", call.partial, call.partial_count);
  const auto* weights = static_cast<const std::uint8_t*>(call.weights);
  buffer("weights", weights, call.weights_count);
  const auto count = static_cast<std::size_t>(call.weights_count);
  if (weight_type_of(call.weight_type) == WeightType::fp32)
    routed.weights_fp32 = {static_cast<const float*>(call.weights), count};
  else
    routed.weights_bf16 = {static_cast<const Bf16*>(call.weights), count};
  return routed;
}

RankCall rank_call_of(const moetail_call& given) {
  checked("call", &given);
  RankCall rank_call;
  rank_call.tail = &body_of("tail", given.tail).tail;
  Call& call = rank_call.call;
  call.batch = given.batch;
  call.mode = mode_of(given.mode);
  call.routed = routed_of(given);
  call.shared = buffer("shared", given.shared, given.shared_count);
  call.residual = buffer("residual", given.residual, given.residual_count);
  call.stream = stream_of(given.stream);
  return rank_call;
}

OutView view_of(const moetail_out_view* given) {
  const moetail_out_view& view = checked("view", given);
  return {view.data, view.batch, view.hidden, view.rank, view.call, view.box};
}

TailBox::Impl& box_of(moetail_tail* tail) {
  return *body_of("tail", tail).tail.impl()->box.impl();
}

PublishTargets targets_of(const moetail_publish_targets* given) {
  const auto& targets = checked("targets", given);
  const TailBox::Impl& box = box_of(targets.tail);
  runtime::check_batch(box.shape, targets.batch);
  if (targets.twoshot != 0 && !protocol::allows_twoshot(box.shape))
    base::bad_argument("targets: twoshot", targets.twoshot, "0: this shape has no twoshot mode");
  return {box.box->view(), box.box.get(), targets.batch, targets.twoshot != 0, box.box->link()};
}

PollSlots slots_of(const moetail_poll_slots* given) {
  const auto& slots = checked("slots", given);
  const TailBox::Impl& box = box_of(slots.tail);
  if (slots.polled == 0)
    base::fail(Code::call_order, "slots: polled = 0: accepted is front_poll: this call is a front call");
  if (slots.batch > box.shape.poll_capacity)
    base::bad_argument("slots: batch", slots.batch,
                       fmt::format("at most poll_capacity = {}", box.shape.poll_capacity));
  return {box.box->view(), box.box.get(), slots.batch, box.box->link()};
}

OutConsumer consumer_of(const moetail_out_consumer* given) {
  const auto& consumer = checked("consumer", given);
  const TailBox::Impl& box = *body_of("box", consumer.box).box.impl();
  runtime::check_batch(box.shape, consumer.batch);
  return {box.box->view(), box.box.get(), consumer.batch, consumer.call, box.box->link()};
}

/// A kernel's argument of the type `Argument`, as bytes.
template <class Argument>
void give_argument(const Argument& value, void* argument, std::uint64_t* size) {
  static_assert(std::is_trivially_copyable_v<Argument>);
  check_out("size", size);
  const std::uint64_t room = *size;
  *size = sizeof value;
  if (argument == nullptr) return;
  if (room < sizeof value) base::bad_argument("size", room, fmt::format("at least {} bytes", sizeof value));
  std::memcpy(argument, &value, sizeof value);
}

}  // namespace
}  // namespace moetail::c_api

moetail_status moetail_tail_create(moetail_box* handle, const moetail_weights* given, int32_t layer,
                                   moetail_tail** tail) noexcept {
  return c_api::guarded([&] {
    c_api::check_out("tail", tail);
    *tail = nullptr;
    const auto& box = c_api::body_of("box", handle);
    const auto& weights = c_api::checked("weights", given);
    const auto full = c_api::buffer("up_proj", weights.up_proj, weights.up_proj_count);
    const auto shard = c_api::buffer("shard", weights.shard, weights.shard_count);
    const auto norm = c_api::buffer("norm", weights.norm, weights.norm_count);
    if (full.empty() == shard.empty())
      base::bad_argument("weights", full.empty() ? "neither up_proj nor shard" : "both up_proj and shard",
                         "one of them");
    const int rank = box.box.rank();
    const auto& shape = box.box.shape();
    const auto view = full.empty() ? moetail::TailWeights::from_shard(shape, rank, shard, norm)
                                   : moetail::TailWeights::from_full(shape, rank, full, norm);
    *tail =
        c_api::Pool<moetail_tail>::instance().add({moetail::PreparedTail(box.box, view, layer), box.keeper});
  });
}

moetail_status moetail_tail_push(moetail_tail* tail, const moetail_bf16* shared, uint64_t shared_count,
                                 int32_t batch, int32_t mode, moetail_stream* stream) noexcept {
  return c_api::guarded([&] {
    const auto& body = c_api::body_of("tail", tail);
    body.tail.push(c_api::buffer("shared", shared, shared_count), batch, c_api::mode_of(mode),
                   c_api::stream_of(stream));
  });
}

moetail_status moetail_tail_publish(moetail_tail* tail, int32_t batch, int32_t mode,
                                    moetail_publish_targets* targets) noexcept {
  return c_api::guarded([&] {
    const auto& body = c_api::body_of("tail", tail);
    c_api::checked("targets", targets);
    const auto given = body.tail.publish(batch, c_api::mode_of(mode));
    *targets = {targets->size, targets->version, tail, batch, given.twoshot ? 1 : 0};
  });
}

moetail_status moetail_tail_poll_slots(moetail_tail* tail, int32_t batch, int32_t mode,
                                       moetail_poll_slots* slots) noexcept {
  return c_api::guarded([&] {
    const auto& body = c_api::body_of("tail", tail);
    c_api::checked("slots", slots);
    const auto given = body.tail.poll_slots(batch, c_api::mode_of(mode));
    *slots = {slots->size, slots->version, tail, batch, given ? 1 : 0};
  });
}

moetail_status moetail_world_run(moetail_world* world, const moetail_call* calls, moetail_out_view* views,
                                 uint64_t num_calls) noexcept {
  return c_api::guarded([&] {
    const auto& keeper = *c_api::body_of("world", world).keeper;
    c_api::check_out("calls", calls);
    c_api::check_out("views", views);
    c_api::check_count("num_calls", num_calls, keeper.world());
    std::vector<moetail::RankCall> rank_calls;
    rank_calls.reserve(num_calls);
    for (uint64_t i = 0; i < num_calls; ++i) {
      c_api::checked("view", &views[i]);
      rank_calls.push_back(c_api::rank_call_of(calls[i]));
    }
    const auto made = keeper.world().run(rank_calls);
    for (uint64_t i = 0; i < num_calls; ++i) {
      const moetail::OutView& view = made[i];
      views[i] = {views[i].size, views[i].version, view.batch, view.hidden, view.rank, 0,
                  view.data,     view.call,        view.box};
    }
  });
}

moetail_status moetail_box_take(moetail_box* box, const moetail_out_view* view, moetail_bf16* destination,
                                uint64_t destination_count, moetail_stream* stream) noexcept {
  return c_api::guarded([&] {
    const auto& body = c_api::body_of("box", box);
    body.box.take(c_api::view_of(view), c_api::buffer("destination", destination, destination_count),
                  c_api::stream_of(stream));
  });
}

moetail_status moetail_box_consumer(moetail_box* box, const moetail_out_view* view, moetail_stream* stream,
                                    moetail_out_consumer* consumer) noexcept {
  return c_api::guarded([&] {
    const auto& body = c_api::body_of("box", box);
    c_api::checked("consumer", consumer);
    const auto given = body.box.consumer(c_api::view_of(view), c_api::stream_of(stream));
    *consumer = {consumer->size, consumer->version, box, given.call, given.batch, 0};
  });
}

moetail_status moetail_tail_destroy(moetail_tail* tail) noexcept {
  return c_api::destroy("moetail_tail_destroy", "tail", tail);
}

moetail_status moetail_publish_partial(const moetail_publish_targets* targets, int32_t token,
                                       const moetail_bf16* row, uint64_t row_count) noexcept {
  return c_api::guarded([&] {
    moetail::publish_partial(c_api::targets_of(targets), token, c_api::buffer("row", row, row_count));
  });
}

moetail_status moetail_fill_route(const moetail_poll_slots* slots, int32_t token, int32_t k,
                                  const moetail_bf16* row, uint64_t row_count, float weight) noexcept {
  return c_api::guarded([&] {
    moetail::fill_route(c_api::slots_of(slots), token, k, c_api::buffer("row", row, row_count), weight);
  });
}

moetail_status moetail_fill_dropped_route(const moetail_poll_slots* slots, int32_t token,
                                          int32_t k) noexcept {
  return c_api::guarded([&] { moetail::fill_dropped_route(c_api::slots_of(slots), token, k); });
}

moetail_status moetail_fill_shared(const moetail_poll_slots* slots, int32_t token, const moetail_bf16* row,
                                   uint64_t row_count) noexcept {
  return c_api::guarded(
      [&] { moetail::fill_shared(c_api::slots_of(slots), token, c_api::buffer("row", row, row_count)); });
}

moetail_status moetail_consume_row(const moetail_out_consumer* consumer, int32_t token, moetail_bf16* row,
                                   uint64_t row_count) noexcept {
  return c_api::guarded([&] {
    const auto from = c_api::consumer_of(consumer);
    if (moetail::consume_row(from, token, c_api::buffer("row", row, row_count))) return;
    const auto record = static_cast<const moetail::engine::Box*>(from.engine)->fault();
    base::fail(moetail::Code::fault, "{}",
               record ? moetail::FaultReport{*record}.text() : "fault: the box is poisoned");
  });
}

moetail_status moetail_publish_argument(const moetail_publish_targets* targets, void* argument,
                                        uint64_t* size) noexcept {
  return c_api::guarded([&] { c_api::give_argument(c_api::targets_of(targets), argument, size); });
}

moetail_status moetail_poll_argument(const moetail_poll_slots* slots, void* argument,
                                     uint64_t* size) noexcept {
  return c_api::guarded([&] { c_api::give_argument(c_api::slots_of(slots), argument, size); });
}

moetail_status moetail_consumer_argument(const moetail_out_consumer* consumer, void* argument,
                                         uint64_t* size) noexcept {
  return c_api::guarded([&] { c_api::give_argument(c_api::consumer_of(consumer), argument, size); });
}

moetail_status moetail_device_header(uint64_t index, const char** name, const char** text) noexcept {
  return c_api::guarded([&] {
    c_api::check_out("name", name);
    c_api::check_out("text", text);
    static const std::vector<moetail::DeviceHeader> headers = moetail::device_headers();
    const bool is_there = index < headers.size();
    *name = is_there ? headers[index].name : nullptr;
    *text = is_there ? headers[index].text : nullptr;
  });
}
