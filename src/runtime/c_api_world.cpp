// SPDX-License-Identifier: Apache-2.0
// The C door: worlds, their streams and their boxes, and the lifetime of all handles.
#include <algorithm>

#include "runtime/c_api_convert.hpp"
#include "runtime/c_api_handles.hpp"
#include "runtime/impl.hpp"

namespace c_api = moetail::c_api;
namespace base = moetail::base;

namespace moetail::c_api {
namespace {

// Eleven days: far above any sensible deadline, and nanoseconds of it are far from overflow.
constexpr std::int64_t kMaxDeadlineMs = 1'000'000'000;
constexpr std::int32_t kMaxThreads = 1024;

std::chrono::milliseconds deadline_of(const char* name, std::int64_t milliseconds) {
  if (milliseconds < 0 || milliseconds > kMaxDeadlineMs)
    base::bad_argument(name, milliseconds, fmt::format("0 (none) to {}", kMaxDeadlineMs));
  return std::chrono::milliseconds(milliseconds);
}

}  // namespace

WorldOptions options_of(const moetail_world_options* given) {
  WorldOptions options;
  if (given != nullptr) {
    checked("options", given);
    options.engine = engine_of(given->engine);
    if (given->threads < 0 || given->threads > kMaxThreads)
      base::bad_argument("threads", given->threads, fmt::format("0 (one a core) to {}", kMaxThreads));
    options.threads = given->threads;
    options.deadline = deadline_of("deadline_ms", given->deadline_ms);
    options.first_deadline = deadline_of("first_deadline_ms", given->first_deadline_ms);
    if (given->policy_file != nullptr) options.policy_file = given->policy_file;
  }
  runtime::check_engine(options.engine);
  return options;
}

moetail_world* add_world(World world) {
  return Pool<moetail_world>::instance().add({std::make_shared<WorldKeeper>(std::move(world))});
}

WorldKeeper::WorldKeeper(World world) : world_(std::move(world)) {
  auto& pool = Pool<moetail_stream>::instance();
  streams_.reserve(2 * static_cast<std::size_t>(world_.local_ranks()));
  try {
    for (int i = 0; i < world_.local_ranks(); ++i) {
      const int rank = world_.first_rank() + i;
      streams_.push_back(pool.add({world_.main_stream(rank)}));
      streams_.push_back(pool.add({world_.side_stream(rank)}));
    }
  } catch (...) {
    release_streams();
    throw;
  }
}

WorldKeeper::~WorldKeeper() {
  for (moetail_stream* stream : streams_) {
    try {
      stream->body->stream.synchronize();
    } catch (...) {  // what a caller's function threw has no one left to be told to
    }
  }
  release_streams();
}

void WorldKeeper::release_streams() {
  for (moetail_stream* stream : streams_) Pool<moetail_stream>::instance().release(stream);
}

moetail_stream* WorldKeeper::stream(int rank, std::size_t which) const {
  const int first = world_.first_rank(), last = first + world_.local_ranks() - 1;
  if (rank < first || rank > last)
    base::bad_argument("rank", rank,
                       first == last ? fmt::format("{}", first) : fmt::format("{} to {}", first, last));
  return streams_[2 * static_cast<std::size_t>(rank - first) + which];
}

}  // namespace moetail::c_api

moetail_status moetail_world_create_virtual(int32_t ranks, const moetail_world_options* options,
                                            moetail_world** world) noexcept {
  return c_api::guarded([&] {
    c_api::check_out("world", world);
    *world = nullptr;
    *world = c_api::add_world(moetail::World::virtual_ranks(ranks, c_api::options_of(options)));
  });
}

moetail_status moetail_world_create_single(const moetail_world_options* options,
                                           moetail_world** world) noexcept {
  return c_api::guarded([&] {
    c_api::check_out("world", world);
    *world = nullptr;
    *world = c_api::add_world(moetail::World::single(c_api::options_of(options)));
  });
}

moetail_status moetail_world_destroy(moetail_world* world) noexcept {
  return c_api::destroy("moetail_world_destroy", "world", world);
}

moetail_status moetail_world_get_info(moetail_world* handle, moetail_world_info* info) noexcept {
  return c_api::guarded([&] {
    const auto& world = c_api::body_of("world", handle).keeper->world();
    c_api::checked("info", info);
    info->ranks = world.ranks();
    info->local_ranks = world.local_ranks();
    info->engine = static_cast<int32_t>(world.engine());
  });
}

moetail_status moetail_world_make_boxes(moetail_world* handle, const moetail_shape* shape,
                                        moetail_box** boxes, uint64_t num_boxes) noexcept {
  return c_api::guarded([&] {
    const auto& keeper = c_api::body_of("world", handle).keeper;
    c_api::check_out("boxes", boxes);
    c_api::check_count("num_boxes", num_boxes, keeper->world());
    std::fill_n(boxes, num_boxes, nullptr);
    auto& pool = c_api::Pool<moetail_box>::instance();
    std::vector<moetail_box*> made;
    try {
      for (moetail::TailBox& box : keeper->world().make_boxes(c_api::shape_of(shape))) {
        made.reserve(num_boxes);
        made.push_back(pool.add({std::move(box), keeper}));
      }
    } catch (...) {
      for (moetail_box* box : made) pool.release(box);
      throw;
    }
    std::copy(made.begin(), made.end(), boxes);
  });
}

moetail_status moetail_world_synchronize(moetail_world* world) noexcept {
  return c_api::guarded([&] {
    const auto keeper = c_api::body_of("world", world).keeper;
    c_api::check_outside_of_streams("moetail_world_synchronize");
    keeper->world().synchronize();
  });
}

moetail_status moetail_world_recover(moetail_world* world, moetail_box* const* boxes,
                                     uint64_t num_boxes) noexcept {
  return c_api::guarded([&] {
    const auto keeper = c_api::body_of("world", world).keeper;
    c_api::check_outside_of_streams("moetail_world_recover");
    c_api::check_out("boxes", boxes);
    c_api::check_count("num_boxes", num_boxes, keeper->world());
    std::vector<moetail::TailBox> all;
    for (uint64_t i = 0; i < num_boxes; ++i) all.push_back(c_api::body_of("boxes", boxes[i]).box);
    keeper->world().recover(all);
  });
}

moetail_status moetail_world_main_stream(moetail_world* world, int32_t rank,
                                         moetail_stream** stream) noexcept {
  return c_api::guarded([&] {
    c_api::check_out("stream", stream);
    *stream = nullptr;
    *stream = c_api::body_of("world", world).keeper->main_stream(rank);
  });
}

moetail_status moetail_world_side_stream(moetail_world* world, int32_t rank,
                                         moetail_stream** stream) noexcept {
  return c_api::guarded([&] {
    c_api::check_out("stream", stream);
    *stream = nullptr;
    *stream = c_api::body_of("world", world).keeper->side_stream(rank);
  });
}

moetail_status moetail_stream_launch(moetail_stream* stream, void (*work)(void*), void* context) noexcept {
  return c_api::guarded([&] {
    const auto& body = c_api::body_of("stream", stream);
    if (work == nullptr) base::bad_argument("work", "null", "a function");
    body.stream.launch([work, context] {
      const c_api::OnStream mark;
      work(context);
    });
  });
}

moetail_status moetail_stream_synchronize(moetail_stream* stream) noexcept {
  return c_api::guarded([&] {
    const auto& body = c_api::body_of("stream", stream);
    c_api::check_outside_of_streams("moetail_stream_synchronize");
    body.stream.synchronize();
  });
}

moetail_status moetail_stream_join(moetail_stream* stream, moetail_stream* other) noexcept {
  return c_api::guarded([&] {
    const auto& body = c_api::body_of("stream", stream);
    if (stream == other) base::bad_argument("other", static_cast<const void*>(other), "another stream");
    body.stream.join(c_api::body_of("other", other).stream);
  });
}

moetail_status moetail_stream_native(moetail_stream* stream, void** native) noexcept {
  return c_api::guarded([&] {
    c_api::check_out("native", native);
    *native = c_api::body_of("stream", stream).stream.native();
  });
}

moetail_status moetail_box_destroy(moetail_box* box) noexcept {
  return c_api::destroy("moetail_box_destroy", "box", box);
}

moetail_status moetail_box_rank(moetail_box* box, int32_t* rank) noexcept {
  return c_api::guarded([&] {
    const auto& body = c_api::body_of("box", box);
    c_api::check_out("rank", rank);
    *rank = body.box.rank();
  });
}

moetail_status moetail_box_shape(moetail_box* box, moetail_shape* shape) noexcept {
  return c_api::guarded([&] {
    const moetail::Shape& from = c_api::body_of("box", box).box.shape();
    c_api::checked("shape", shape);
    *shape = {shape->size, shape->version, from.hidden,        from.latent, from.ranks,
              from.top_k,  from.capacity,  from.poll_capacity, from.eps};
  });
}

moetail_status moetail_box_bytes(moetail_box* box, uint64_t* bytes) noexcept {
  return c_api::guarded([&] {
    const auto& body = c_api::body_of("box", box);
    c_api::check_out("bytes", bytes);
    *bytes = body.box.bytes();
  });
}

moetail_status moetail_box_fault(moetail_box* box, moetail_fault* fault) noexcept {
  return c_api::guarded([&] {
    const auto report = c_api::body_of("box", box).box.status();
    c_api::checked("fault", fault);
    *fault = MOETAIL_FAULT_INIT;
    if (!report) return;
    const auto& record = report->record;
    fault->kind = static_cast<int32_t>(record.kind);
    fault->site = static_cast<int32_t>(record.site);
    fault->field = static_cast<int32_t>(record.field);
    fault->rank = record.rank;
    fault->peer = record.peer;
    fault->layer = record.layer;
    fault->token = record.token;
    fault->k = record.k;
    fault->slot = record.slot;
    fault->epoch = record.epoch;
    fault->expected = record.expected;
    fault->seen = record.seen;
    fault->elapsed_ns = record.elapsed_ns;
    const std::string text = report->text();
    text.copy(fault->text, sizeof fault->text - 1);
  });
}

moetail_status moetail_box_abort(moetail_box* box) noexcept {
  return c_api::guarded([&] { c_api::body_of("box", box).box.abort(); });
}
