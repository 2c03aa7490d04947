// SPDX-License-Identifier: Apache-2.0
// The C door: its agreement with the C++ door, lifetimes, faults and what streams may call. c_api_library_test.cpp
// holds what concerns the library as a whole, c_api_refusals_test.cpp the bad arguments.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/c_api_testing.hpp"
#include "tests/harness.hpp"
#include "tests/record.hpp"

namespace moetail::testing {
namespace {

moetail_call c_call(const Harness& harness, const verify::RankInput& input, int batch, Mode mode) {
  const auto count = [batch](int columns) { return static_cast<std::uint64_t>(batch * columns); };
  moetail_call call = MOETAIL_CALL_INIT;
  call.batch = batch;
  call.mode = static_cast<int>(mode);
  call.form = static_cast<int>(input.form);
  call.weight_type = static_cast<int>(input.weight_type);
  if (input.form == Form::partial) {
    call.partial = input.partial;
    call.partial_count = count(harness.shape().latent);
  } else {
    call.rows = input.rows;
    call.rows_count =
        static_cast<std::uint64_t>(input.num_rows) * static_cast<std::uint64_t>(harness.shape().latent);
    call.weights = input.weights;
    call.weights_count = count(harness.shape().top_k);
    if (input.form == Form::permuted) {
      call.map = input.map;
      call.map_count = call.weights_count;
    }
  }
  if (input.residual != nullptr) {
    call.residual = input.residual;
    call.residual_count = count(harness.shape().hidden);
  }
  return call;
}

TEST(CApi, GivesTheBitsOfTheCppDoor) {
  constexpr int kBatch = 3;
  CGroup group(2);
  Shape shape;
  shape.hidden = group.shape.hidden;
  shape.latent = group.shape.latent;
  shape.ranks = group.shape.ranks;
  shape.top_k = group.shape.top_k;
  shape.capacity = shape.poll_capacity = group.shape.capacity;
  Harness harness(shape);
  std::copy_n(harness.weights().w_up.begin(), group.up_proj.size(), group.up_proj.begin());
  std::copy_n(harness.weights().gamma.begin(), group.norm.size(), group.norm.begin());
  for (Mode mode : {Mode::front, Mode::front_poll, Mode::publish, Mode::twoshot}) {
    for (Form form : {Form::expanded, Form::permuted, Form::partial}) {
      for (WeightType type : {WeightType::bf16, WeightType::fp32}) {
        SCOPED_TRACE(fmt::format("{} {} {}", moetail_mode_name(static_cast<int>(mode)),
                                 protocol::form_name(form), static_cast<int>(type)));
        CallOptions options;
        options.mode = mode;
        options.inputs.form = form;
        options.inputs.weight_type = type;
        options.inputs.residual = type == WeightType::fp32;
        const auto& inputs = harness.make_inputs(kBatch, options);
        const Outputs& expected = harness.enqueue(kBatch, inputs, options);
        harness.world().synchronize();

        std::vector<moetail_call> calls;
        for (std::size_t rank = 0; rank < 2; ++rank) {
          const auto& input = inputs.ranks[rank];
          calls.push_back(c_call(harness, input, kBatch, mode));
          calls.back().tail = group.tails[rank];
          const auto count = static_cast<std::uint64_t>(kBatch * shape.hidden);
          ASSERT_OK(
              moetail_tail_push(group.tails[rank], input.shared, count, kBatch, calls.back().mode, nullptr));
        }
        ASSERT_OK(group.run(calls));
        group.take();
        ASSERT_OK(moetail_world_synchronize(group.world));
        EXPECT_EQ(group.out, expected);
      }
    }
  }
}

TEST(CApi, TellsWhatWasMade) {
  CGroup group(4);
  moetail_world_info info = MOETAIL_WORLD_INFO_INIT;
  ASSERT_OK(moetail_world_get_info(group.world, &info));
  EXPECT_EQ(info.ranks, 4);
  EXPECT_EQ(info.local_ranks, 4);
  EXPECT_EQ(info.engine, MOETAIL_ENGINE_CPU);
  moetail_shape shape = MOETAIL_SHAPE_INIT;
  std::int32_t rank = -1;
  std::uint64_t bytes = 0;
  ASSERT_OK(moetail_box_shape(group.boxes[3], &shape));
  ASSERT_OK(moetail_box_rank(group.boxes[3], &rank));
  ASSERT_OK(moetail_box_bytes(group.boxes[3], &bytes));
  EXPECT_EQ(shape.hidden, group.shape.hidden);
  EXPECT_EQ(shape.poll_capacity, group.shape.poll_capacity);
  EXPECT_EQ(rank, 3);
  EXPECT_GT(bytes, 3u * 4 * 8 * 128 * 2);
}

TEST(CApiLifetime, HandlesGoInAnyOrderWhileWorkIsUnderWay) {
  // The gate keeps the work behind it from ending before the handles are released.
  struct Gate {
    std::atomic<bool> open{false}, passed{false};
  } gate;
  CGroup group(2);
  struct OpenAtEnd {
    Gate& gate;
    ~OpenAtEnd() { gate.open.store(true); }
  } open_at_end{gate};
  const auto wait = [](void* context) {
    Gate& g = *static_cast<Gate*>(context);
    while (!g.open.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    g.passed.store(true);
  };
  moetail_stream* stream = group.main_stream(0);
  ASSERT_OK(moetail_stream_launch(stream, wait, &gate));
  ASSERT_OK(group.run(group.calls(2)));
  group.take();
  ASSERT_OK(moetail_world_destroy(group.world));
  ASSERT_OK(moetail_tail_destroy(group.tails[0]));
  ASSERT_OK(moetail_tail_destroy(group.tails[1]));
  EXPECT_FALSE(gate.passed.load());
  ASSERT_OK(moetail_stream_launch(
      stream, [](void*) {}, nullptr))
      << "the boxes keep the world's streams";
  gate.open.store(true);
  ASSERT_OK(moetail_box_destroy(group.boxes[0]));  // waits until the streams of its rank are idle
  EXPECT_TRUE(gate.passed.load());
  ASSERT_OK(moetail_box_destroy(group.boxes[1]));
  EXPECT_EQ(group.out[0], group.out[1]);
  EXPECT_NE(group.out[0][0], 0);
  expect_refused(moetail_stream_synchronize(stream), MOETAIL_INVALID_ARGUMENT,
                 {"stream", "a live moetail_stream"});
  group.world = nullptr;
  group.boxes.clear();
  group.tails.clear();
}

TEST(CApiFault, DeadlineNamesTheWait) {
  moetail_world_options options = MOETAIL_WORLD_OPTIONS_INIT;
  options.first_deadline_ms = 50;
  CGroup group(2, &options);
  auto calls = group.calls(1);
  for (auto& call : calls) {
    call.mode = MOETAIL_MODE_PUBLISH;
    call.form = MOETAIL_FORM_PUBLISHED;
    call.partial = nullptr;
    call.partial_count = 0;
    ASSERT_OK(moetail_tail_push(call.tail, call.shared, call.shared_count, 1, call.mode, nullptr));
  }
  ASSERT_OK(group.run(calls));  // nobody publishes
  group.take();
  expect_refused(moetail_world_synchronize(group.world), MOETAIL_FAULT, {"nothing came within", "layer 3"});
  for (std::size_t rank = 0; rank < 2; ++rank) {
    moetail_fault fault = MOETAIL_FAULT_INIT;
    ASSERT_OK(moetail_box_fault(group.boxes[rank], &fault));
    EXPECT_TRUE(fault.kind == MOETAIL_FAULT_DEADLINE || fault.kind == MOETAIL_FAULT_POISONED);
    EXPECT_EQ(fault.rank, static_cast<int>(rank));
    if (fault.kind == MOETAIL_FAULT_DEADLINE) {
      EXPECT_GE(fault.elapsed_ns, 50'000'000u);
    }
    EXPECT_NE(std::string(fault.text).find(moetail_site_name(fault.site)), std::string::npos);
    EXPECT_TRUE(std::ranges::all_of(group.out[rank], [](moetail_bf16 v) { return v == 0x7FFF; }));
  }
  expect_refused(group.run(group.calls(1)), MOETAIL_FAULT, {"poisoned until"});
}

TEST(CApiFault, RecoveryHealsWhatAnAbortBroke) {
  CGroup group(2);
  ASSERT_OK(moetail_box_abort(group.boxes[1]));
  auto calls = group.calls(1);
  for (auto& call : calls) {
    call.mode = MOETAIL_MODE_TWOSHOT;
    call.form = MOETAIL_FORM_PUBLISHED;
    call.partial = nullptr;
    call.partial_count = 0;
    ASSERT_OK(moetail_tail_push(call.tail, call.shared, call.shared_count, 1, call.mode, nullptr));
  }
  ASSERT_OK(group.run(calls));
  group.take();
  expect_refused(moetail_world_synchronize(group.world), MOETAIL_FAULT, {"aborted by the host", "rank 1"});
  std::vector<moetail_box*> twice = {group.boxes[0], group.boxes[0]};
  expect_refused(moetail_world_recover(group.world, twice.data(), 2), MOETAIL_INVALID_ARGUMENT,
                 {"boxes: rank = 0"});
  ASSERT_OK(moetail_world_recover(group.world, group.boxes.data(), 2));
  ASSERT_OK(group.run(group.calls(2)));
  group.take();
  ASSERT_OK(moetail_world_synchronize(group.world));
  EXPECT_EQ(group.out[0], group.out[1]);
  EXPECT_NE(group.out[0][0], 0x7FFF);
}

TEST(CApiStreams, WhatWaitsIsRefusedOnAStream) {
  CGroup group(1);
  struct Seen {
    CGroup* group;
    moetail_status status[5];
    std::string text;
  } seen{&group, {}, ""};
  const auto work = [](void* context) {
    Seen& s = *static_cast<Seen*>(context);
    s.status[0] = moetail_world_synchronize(s.group->world);
    s.status[1] = moetail_stream_synchronize(s.group->main_stream(0));
    s.status[2] = moetail_world_recover(s.group->world, s.group->boxes.data(), 1);
    s.status[3] = moetail_box_destroy(s.group->boxes[0]);
    s.status[4] = moetail_world_destroy(s.group->world);
    s.text = moetail_last_error();
  };
  expect_refused(moetail_supports(9, nullptr), MOETAIL_INVALID_ARGUMENT, {"engine = 9"});
  ASSERT_OK(moetail_stream_launch(group.main_stream(0), work, &seen));
  ASSERT_OK(moetail_world_synchronize(group.world));
  for (moetail_status status : seen.status) EXPECT_EQ(status, MOETAIL_CALL_ORDER);
  EXPECT_NE(seen.text.find("moetail_world_destroy"), std::string::npos) << seen.text;
  EXPECT_NE(std::string(moetail_last_error()).find("engine = 9"), std::string::npos)
      << "the text is the thread's own";
  record_fault("C door: what waits or destroys, called on a stream's thread", kThreads, 5,
               "refused as out of order");
}

TEST(CApiStreams, WhatAFunctionThrowsIsAFaultOfTheStream) {
  CGroup group(1);
  moetail_stream* stream = group.main_stream(0);
  ASSERT_OK(moetail_stream_launch(
      stream, [](void*) { throw std::runtime_error("no more ink"); }, nullptr));
  expect_refused(moetail_stream_synchronize(stream), MOETAIL_FAULT, {"no more ink"});
  ASSERT_OK(moetail_stream_launch(
      stream, [](void*) { throw 7; }, nullptr));
  expect_refused(moetail_world_synchronize(group.world), MOETAIL_FAULT, {"threw"});
  EXPECT_OK(moetail_world_synchronize(group.world));
  record_fault("C door: a stream's function that throws", kThreads, 2, "a fault of the stream, told once");
}

}  // namespace
}  // namespace moetail::testing
