// SPDX-License-Identifier: Apache-2.0
// Producers that the library brings along, on both engines, and the headers for those that users write.
#include "base/error.hpp"
#include "engine/cuda/sources.hpp"
#include "runtime/impl.hpp"

namespace moetail {
namespace {

/// The box of a struct that publish or poll_slots returned.
engine::Box& box_of(const void* engine) {
  if (engine == nullptr) base::bad_argument("engine", "null", "a struct that publish or poll_slots returned");
  return *static_cast<engine::Box*>(const_cast<void*>(engine));
}

engine::Stream& stream_for(const char* what, const protocol::BoxView& box, const Stream& stream) {
  if (!stream)
    base::bad_argument(fmt::format("{}: stream", what), "empty",
                       fmt::format("the main or side stream of rank {}", box.rank));
  if (stream.impl()->rank != box.rank)
    base::bad_argument(fmt::format("{}: stream of rank", what), stream.impl()->rank,
                       fmt::format("a stream of rank {}", box.rank));
  return *stream.impl()->stream;
}

std::size_t num_elements(int batch, int columns) {
  return static_cast<std::size_t>(batch) * static_cast<std::size_t>(columns);
}

}  // namespace

void publish_rows(const PublishTargets& targets, const Stream& stream, std::span<const Bf16> rows) {
  engine::Box& box = box_of(targets.engine);
  engine::Stream& on = stream_for("publish_rows", targets.box, stream);
  if (targets.batch == 0) return;
  runtime::check_buffer("rows", rows.data(), rows.size(),
                        num_elements(targets.batch, targets.box.layout.shape.latent), 16);
  box.check_address("rows", rows.data());
  box.publish_rows(on, targets, rows.data());
}

void fill_rows(const PollSlots& slots, const Stream& stream, const Routed& routed,
               std::span<const Bf16> shared) {
  engine::Box& box = box_of(slots.engine);
  engine::Stream& on = stream_for("fill_rows", slots.box, stream);
  if (slots.batch == 0) return;
  const Shape& shape = slots.box.layout.shape;
  if (routed.form != Form::expanded && routed.form != Form::permuted)
    base::bad_argument("routed.form", protocol::form_name(routed.form), "rows or permuted in fill_rows");
  runtime::check_routed(routed, shape, slots.batch);
  runtime::check_buffer("shared", shared.data(), shared.size(), num_elements(slots.batch, shape.hidden), 16);
  runtime::check_addresses(box, routed);
  box.check_address("shared", shared.data());
  engine::TailCall call;
  call.mode = Mode::front_poll;
  call.batch = slots.batch;
  call.polls_slots = call.polls_shared = true;
  call.routed = runtime::routed_input(routed, shape);
  call.shared = shared.data();
  box.fill(on, call);
}

std::vector<DeviceHeader> device_headers() {
  std::vector<DeviceHeader> headers;
  for (const cuda::Header& header : cuda::embedded_headers())
    if (header.name.rfind("kernels/", 0) != 0) headers.push_back({header.name.c_str(), header.text.c_str()});
  return headers;
}

}  // namespace moetail
