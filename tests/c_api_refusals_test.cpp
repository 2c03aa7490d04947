// SPDX-License-Identifier: Apache-2.0
// The C door refuses what is wrong: null, released and foreign handles, structs of another size or version, numbers
// that are no enumerator, and buffers; each with a status and a text, and with nothing done.
#include <cstdlib>
#include <functional>

#include "tests/c_api_testing.hpp"
#include "tests/record.hpp"

namespace moetail::testing {
namespace {

using Action = std::function<moetail_status()>;

void expect_all_refused(const std::vector<Action>& actions, const std::string& part) {
  for (std::size_t i = 0; i < actions.size(); ++i) {
    SCOPED_TRACE("action " + std::to_string(i));
    expect_refused(actions[i](), MOETAIL_INVALID_ARGUMENT, {part, "accepted is"});
  }
}

TEST(CApiRefusals, NullHandlesAndPointers) {
  CGroup group(1);
  moetail_world* const world = group.world;
  moetail_box* const box = group.boxes[0];
  moetail_tail* const tail = group.tails[0];
  moetail_stream* const stream = group.main_stream(0);
  auto call = group.calls(1)[0];
  moetail_out_view view = MOETAIL_OUT_VIEW_INIT;
  moetail_weights weights = group.weights();
  moetail_publish_targets targets = MOETAIL_PUBLISH_TARGETS_INIT;
  moetail_poll_slots slots = MOETAIL_POLL_SLOTS_INIT;
  moetail_out_consumer consumer = MOETAIL_OUT_CONSUMER_INIT;
  moetail_fault fault = MOETAIL_FAULT_INIT;
  moetail_world_info info = MOETAIL_WORLD_INFO_INIT;
  moetail_plan_request request = MOETAIL_PLAN_REQUEST_INIT;
  moetail_plan plan = MOETAIL_PLAN_INIT;
  moetail_box* made = nullptr;
  moetail_stream* some_stream = nullptr;
  moetail_tail* some_tail = nullptr;
  std::int32_t number = 0;
  std::uint64_t bytes = 0;
  void* address = nullptr;
  Rows row(256);
  const auto work = [](void*) {};
  expect_all_refused({
                         [&] { return moetail_make_plan(nullptr, &request, &plan); },
                         [&] { return moetail_make_plan(&group.shape, nullptr, &plan); },
                         [&] { return moetail_make_plan(&group.shape, &request, nullptr); },
                         [&] { return moetail_world_create_virtual(1, nullptr, nullptr); },
                         [&] { return moetail_world_create_single(nullptr, nullptr); },
                         [&] { return moetail_world_get_info(nullptr, &info); },
                         [&] { return moetail_world_get_info(world, nullptr); },
                         [&] { return moetail_world_make_boxes(nullptr, &group.shape, &made, 1); },
                         [&] { return moetail_world_make_boxes(world, nullptr, &made, 1); },
                         [&] { return moetail_world_make_boxes(world, &group.shape, nullptr, 1); },
                         [&] { return moetail_world_run(nullptr, &call, &view, 1); },
                         [&] { return moetail_world_run(world, nullptr, &view, 1); },
                         [&] { return moetail_world_run(world, &call, nullptr, 1); },
                         [&] { return moetail_world_synchronize(nullptr); },
                         [&] { return moetail_world_recover(nullptr, &box, 1); },
                         [&] { return moetail_world_recover(world, nullptr, 1); },
                         [&] { return moetail_world_recover(world, &made, 1); },
                         [&] { return moetail_world_main_stream(nullptr, 0, &some_stream); },
                         [&] { return moetail_world_main_stream(world, 0, nullptr); },
                         [&] { return moetail_world_side_stream(world, 0, nullptr); },
                         [&] { return moetail_stream_launch(nullptr, work, nullptr); },
                         [&] { return moetail_stream_launch(stream, nullptr, nullptr); },
                         [&] { return moetail_stream_synchronize(nullptr); },
                         [&] { return moetail_stream_join(nullptr, stream); },
                         [&] { return moetail_stream_join(stream, nullptr); },
                         [&] { return moetail_stream_native(nullptr, &address); },
                         [&] { return moetail_stream_native(stream, nullptr); },
                         [&] { return moetail_box_rank(nullptr, &number); },
                         [&] { return moetail_box_rank(box, nullptr); },
                         [&] { return moetail_box_shape(box, nullptr); },
                         [&] { return moetail_box_bytes(nullptr, &bytes); },
                         [&] { return moetail_box_bytes(box, nullptr); },
                         [&] { return moetail_box_take(nullptr, &view, row.data(), row.size(), nullptr); },
                         [&] { return moetail_box_take(box, nullptr, row.data(), row.size(), nullptr); },
                         [&] { return moetail_box_consumer(box, nullptr, nullptr, &consumer); },
                         [&] { return moetail_box_consumer(box, &view, nullptr, nullptr); },
                         [&] { return moetail_box_fault(nullptr, &fault); },
                         [&] { return moetail_box_fault(box, nullptr); },
                         [&] { return moetail_box_abort(nullptr); },
                         [&] { return moetail_tail_create(nullptr, &weights, 0, &some_tail); },
                         [&] { return moetail_tail_create(box, nullptr, 0, &some_tail); },
                         [&] { return moetail_tail_create(box, &weights, 0, nullptr); },
                         [&] { return moetail_tail_push(nullptr, row.data(), row.size(), 1, 0, nullptr); },
                         [&] { return moetail_tail_publish(nullptr, 1, 0, &targets); },
                         [&] { return moetail_tail_publish(tail, 1, 0, nullptr); },
                         [&] { return moetail_tail_poll_slots(tail, 1, 0, nullptr); },
                         [&] { return moetail_publish_partial(nullptr, 0, row.data(), row.size()); },
                         [&] { return moetail_publish_partial(&targets, 0, row.data(), row.size()); },
                         [&] { return moetail_fill_route(&slots, 0, 0, row.data(), row.size(), 1.0f); },
                         [&] { return moetail_fill_dropped_route(nullptr, 0, 0); },
                         [&] { return moetail_fill_shared(nullptr, 0, row.data(), row.size()); },
                         [&] { return moetail_consume_row(&consumer, 0, row.data(), row.size()); },
                     },
                     "= null");
  EXPECT_OK(moetail_world_destroy(nullptr));
  EXPECT_OK(moetail_box_destroy(nullptr));
  EXPECT_OK(moetail_tail_destroy(nullptr));
  EXPECT_OK(group.run(group.calls(1))) << "nothing of the above has opened a call";
  group.take();
  EXPECT_OK(moetail_world_synchronize(world));
  record_fault("C door: null handles and pointers", kHost, 52, "refused by name with nothing opened");
}

TEST(CApiRefusals, ReleasedAndForeignHandles) {
  CGroup group(1);
  moetail_weights weights = group.weights();
  moetail_tail* tail = nullptr;
  ASSERT_OK(moetail_tail_create(group.boxes[0], &weights, 0, &tail));
  ASSERT_OK(moetail_tail_destroy(tail));
  alignas(64) unsigned char memory[256] = {};
  std::int32_t rank = 0;
  expect_all_refused(
      {
          [&] { return moetail_tail_destroy(tail); },
          [&] { return moetail_tail_push(tail, group.up_proj.data(), 256, 1, 0, nullptr); },
          [&] { return moetail_box_rank(reinterpret_cast<moetail_box*>(group.tails[0]), &rank); },
          [&] { return moetail_tail_destroy(reinterpret_cast<moetail_tail*>(group.world)); },
          [&] { return moetail_box_rank(reinterpret_cast<moetail_box*>(memory), &rank); },
          [&] { return moetail_box_rank(reinterpret_cast<moetail_box*>(memory + 3), &rank); },
      },
      "a live moetail_");
  CGroup other(1);
  auto call = group.calls(1);
  call[0].stream = other.main_stream(0);
  expect_refused(group.run(call), MOETAIL_BUSY, {"of another world"});
  call[0] = other.calls(1)[0];
  expect_refused(group.run(call), MOETAIL_INVALID_ARGUMENT, {"a box of this world"});
  record_fault("C door: released handles, of another kind, or none at all", kHost, 8, "refused by name");
}

/// The refusals of one struct: another size, another version, and memory that was never filled in.
template <class Struct>
void expect_versioned(Struct good, const std::string& name,
                      const std::function<moetail_status(Struct*)>& use) {
  Struct wrong = good;
  wrong.size -= 4;
  expect_refused(use(&wrong), MOETAIL_INVALID_ARGUMENT,
                 {name + ": size", std::to_string(sizeof(Struct)) + " bytes"});
  wrong = good;
  wrong.version = 2;
  expect_refused(use(&wrong), MOETAIL_INVALID_ARGUMENT, {name + ": version = 2"});
  wrong = {};
  expect_refused(use(&wrong), MOETAIL_INVALID_ARGUMENT, {name + ": version = 0"});
}

TEST(CApiRefusals, StructsOfAnotherSizeOrVersion) {
  CGroup group(1);
  moetail_world* world = nullptr;
  moetail_tail* tail = nullptr;
  moetail_box* box = nullptr;
  Rows row(256);
  expect_versioned<moetail_shape>(group.shape, "shape",
                                  [&](auto* s) { return moetail_world_make_boxes(group.world, s, &box, 1); });
  expect_versioned<moetail_shape>(group.shape, "shape", [&](auto* s) { return moetail_supports(1, s); });
  expect_versioned<moetail_shape>(group.shape, "shape",
                                  [&](auto* s) { return moetail_box_shape(group.boxes[0], s); });
  expect_versioned<moetail_world_options>(MOETAIL_WORLD_OPTIONS_INIT, "options",
                                          [&](auto* s) { return moetail_world_create_single(s, &world); });
  expect_versioned<moetail_world_info>(MOETAIL_WORLD_INFO_INIT, "info",
                                       [&](auto* s) { return moetail_world_get_info(group.world, s); });
  expect_versioned<moetail_weights>(
      group.weights(), "weights", [&](auto* s) { return moetail_tail_create(group.boxes[0], s, 0, &tail); });
  moetail_out_view view = MOETAIL_OUT_VIEW_INIT;
  moetail_call call = group.calls(1)[0];
  expect_versioned<moetail_call>(call, "call",
                                 [&](auto* s) { return moetail_world_run(group.world, s, &view, 1); });
  expect_versioned<moetail_out_view>(view, "view",
                                     [&](auto* s) { return moetail_world_run(group.world, &call, s, 1); });
  expect_versioned<moetail_out_view>(view, "view", [&](auto* s) {
    return moetail_box_take(group.boxes[0], s, row.data(), row.size(), nullptr);
  });
  expect_versioned<moetail_publish_targets>(MOETAIL_PUBLISH_TARGETS_INIT, "targets", [&](auto* s) {
    return moetail_tail_publish(group.tails[0], 1, MOETAIL_MODE_PUBLISH, s);
  });
  expect_versioned<moetail_publish_targets>(MOETAIL_PUBLISH_TARGETS_INIT, "targets", [&](auto* s) {
    return moetail_publish_partial(s, 0, row.data(), row.size());
  });
  expect_versioned<moetail_poll_slots>(MOETAIL_POLL_SLOTS_INIT, "slots", [&](auto* s) {
    return moetail_tail_poll_slots(group.tails[0], 1, 0, s);
  });
  expect_versioned<moetail_poll_slots>(MOETAIL_POLL_SLOTS_INIT, "slots",
                                       [&](auto* s) { return moetail_fill_dropped_route(s, 0, 0); });
  expect_versioned<moetail_out_consumer>(MOETAIL_OUT_CONSUMER_INIT, "consumer", [&](auto* s) {
    return moetail_consume_row(s, 0, row.data(), row.size());
  });
  expect_versioned<moetail_fault>(MOETAIL_FAULT_INIT, "fault",
                                  [&](auto* s) { return moetail_box_fault(group.boxes[0], s); });
  moetail_plan plan = MOETAIL_PLAN_INIT;
  moetail_plan_request request = MOETAIL_PLAN_REQUEST_INIT;
  expect_versioned<moetail_plan_request>(request, "request",
                                         [&](auto* s) { return moetail_make_plan(&group.shape, s, &plan); });
  expect_versioned<moetail_plan>(plan, "plan",
                                 [&](auto* s) { return moetail_make_plan(&group.shape, &request, s); });
  EXPECT_EQ(world, nullptr);
  EXPECT_EQ(tail, nullptr);
  EXPECT_OK(group.run(group.calls(1))) << "nothing of the above has opened a call";
  group.take();
  EXPECT_OK(moetail_world_synchronize(group.world));
  record_fault("C door: structs of another size or version", kHost, 51,
               "refused by name with nothing opened");
}

TEST(CApiRefusals, NumbersOutsideOfWhatIsAccepted) {
  CGroup group(2);
  const auto refuse_call = [&](const std::string& part, const std::function<void(moetail_call&)>& spoil) {
    auto calls = group.calls(2);
    spoil(calls[1]);
    expect_refused(group.run(calls), MOETAIL_INVALID_ARGUMENT, {part, "accepted is"});
  };
  refuse_call("mode = 5", [](auto& call) { call.mode = 5; });
  refuse_call("mode = -1", [](auto& call) { call.mode = -1; });
  refuse_call("form = 4", [](auto& call) { call.form = 4; });
  refuse_call("weight_type = 2", [](auto& call) { call.weight_type = 2; });
  refuse_call("batch of rank 1 = 9", [](auto& call) { call.batch = 9; });
  refuse_call("batch of rank 1 = -1", [](auto& call) { call.batch = -1; });
  refuse_call("shared: count = 0", [](auto& call) { call.shared_count = 0; });
  refuse_call("shared: size = 511", [](auto& call) { call.shared_count = 511; });
  refuse_call("shared = null", [](auto& call) { call.shared = nullptr; });
  refuse_call("partial: size = 255", [](auto& call) { call.partial_count = 255; });
  refuse_call("partial = ", [](auto& call) { ++call.partial; });
  refuse_call("residual: count = 0", [](auto& call) { call.residual = call.shared; });
  refuse_call("weights: size = 0", [](auto& call) { call.form = MOETAIL_FORM_EXPANDED; });
  expect_refused(moetail_tail_push(group.tails[0], group.shared.data(), 512, 2, 9, nullptr),
                 MOETAIL_INVALID_ARGUMENT, {"mode = 9"});

  moetail_world* world = reinterpret_cast<moetail_world*>(group.world);
  const auto refuse_world = [&](const std::string& part,
                                const std::function<void(moetail_world_options&)>& spoil) {
    moetail_world_options options = MOETAIL_WORLD_OPTIONS_INIT;
    spoil(options);
    expect_refused(moetail_world_create_virtual(2, &options, &world), MOETAIL_INVALID_ARGUMENT, {part});
    EXPECT_EQ(world, nullptr);
  };
  refuse_world("engine = 3", [](auto& options) { options.engine = 3; });
  refuse_world("threads = -1", [](auto& options) { options.threads = -1; });
  refuse_world("threads = 1025", [](auto& options) { options.threads = 1025; });
  refuse_world("deadline_ms = -1", [](auto& options) { options.deadline_ms = -1; });
  refuse_world("first_deadline_ms = 9223372036854775807",
               [](auto& options) { options.first_deadline_ms = INT64_MAX; });
  expect_refused(moetail_world_create_virtual(3, nullptr, &world), MOETAIL_INVALID_ARGUMENT, {"ranks = 3"});
  moetail_world_options options = MOETAIL_WORLD_OPTIONS_INIT;
  setenv("MOETAIL_CUDA_DRIVER", "libmoetail-no-such-driver.so.1", 1);
  options.engine = MOETAIL_ENGINE_CUDA;
  expect_refused(moetail_world_create_single(&options, &world), MOETAIL_UNSUPPORTED, {"cuda"});

  moetail_stream* stream = nullptr;
  expect_refused(moetail_world_main_stream(group.world, 2, &stream), MOETAIL_INVALID_ARGUMENT,
                 {"rank = 2", "0 to 1"});
  expect_refused(moetail_stream_join(group.main_stream(0), group.main_stream(0)), MOETAIL_INVALID_ARGUMENT,
                 {"other"});
  moetail_out_view view = MOETAIL_OUT_VIEW_INIT;
  expect_refused(moetail_world_run(group.world, group.calls(1).data(), &view, 1), MOETAIL_INVALID_ARGUMENT,
                 {"num_calls = 1", "2"});
  record_fault("C door: numbers outside of what is accepted", kHost, 24, "refused by name");
}

TEST(CApiRefusals, WeightsAndByValueStructs) {
  CGroup group(1);
  moetail_tail* tail = nullptr;
  moetail_weights weights = group.weights();
  weights.shard = weights.up_proj;
  weights.shard_count = weights.up_proj_count;
  expect_refused(moetail_tail_create(group.boxes[0], &weights, 0, &tail), MOETAIL_INVALID_ARGUMENT, {"both"});
  weights = MOETAIL_WEIGHTS_INIT;
  expect_refused(moetail_tail_create(group.boxes[0], &weights, 0, &tail), MOETAIL_INVALID_ARGUMENT,
                 {"neither"});
  weights = group.weights();
  weights.norm_count = 127;
  expect_refused(moetail_tail_create(group.boxes[0], &weights, 0, &tail), MOETAIL_INVALID_ARGUMENT,
                 {"norm: size = 127"});
  weights = group.weights();
  expect_refused(moetail_tail_create(group.boxes[0], &weights, -1, &tail), MOETAIL_INVALID_ARGUMENT,
                 {"layer = -1"});

  alignas(16) moetail_bf16 row[256] = {};
  moetail_publish_targets targets = MOETAIL_PUBLISH_TARGETS_INIT;
  targets.tail = group.tails[0];
  targets.batch = 2;
  expect_refused(moetail_publish_partial(&targets, 2, row, 128), MOETAIL_INVALID_ARGUMENT,
                 {"token = 2", "0 to 1"});
  expect_refused(moetail_publish_partial(&targets, 0, row, 127), MOETAIL_INVALID_ARGUMENT,
                 {"row: size = 127"});
  expect_refused(moetail_publish_partial(&targets, 0, row + 1, 128), MOETAIL_INVALID_ARGUMENT,
                 {"aligned to 16"});
  targets.batch = 9;
  expect_refused(moetail_publish_partial(&targets, 8, row, 128), MOETAIL_INVALID_ARGUMENT, {"batch = 9"});
  moetail_poll_slots slots = MOETAIL_POLL_SLOTS_INIT;
  slots.tail = group.tails[0];
  slots.batch = 1;
  expect_refused(moetail_fill_dropped_route(&slots, 0, 0), MOETAIL_CALL_ORDER, {"polled = 0"});
  slots.polled = 1;
  expect_refused(moetail_fill_route(&slots, 0, 4, row, 128, 1.0f), MOETAIL_INVALID_ARGUMENT,
                 {"k = 4", "0 to 3"});
  expect_refused(moetail_fill_shared(&slots, 0, row, 255), MOETAIL_INVALID_ARGUMENT, {"row: size = 255"});
  record_fault("C door: weights and by-value structs", kHost, 11, "refused by name");
}

}  // namespace
}  // namespace moetail::testing
