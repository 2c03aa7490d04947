// SPDX-License-Identifier: Apache-2.0
// Worlds, streams, boxes and group calls: what is accepted, and what each refusal says.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <stdexcept>

#include "tests/expect_error.hpp"
#include "tests/harness.hpp"
#include "tests/record.hpp"
#include "tests/variants.hpp"

namespace moetail::testing {
namespace {

using namespace std::chrono_literals;

TEST(RuntimeWorld, RanksAndEngines) {
  for (int ranks : {1, 2, 4, 8, 16}) {
    const World world = World::virtual_ranks(ranks);
    EXPECT_EQ(world.ranks(), ranks);
    EXPECT_EQ(world.local_ranks(), ranks);
    EXPECT_EQ(world.engine(), Engine::cpu);
  }
  EXPECT_EQ(World::single().ranks(), 1);
  for (int ranks : {-1, 0, 3, 5, 6, 32})
    expect_error(Code::invalid_argument, {fmt::format("ranks = {}", ranks), "1, 2, 4, 8 or 16"},
                 [&] { World::virtual_ranks(ranks); });
  WorldOptions options;
  options.engine = Engine::cpu;
  EXPECT_EQ(World::single(options).engine(), Engine::cpu);
  setenv("MOETAIL_CUDA_DRIVER", "libmoetail-no-such-driver.so.1", 1);
  options.engine = Engine::cuda;
  expect_error(Code::unsupported, {"engine = cuda", "auto or cpu", "no CUDA"},
               [&] { World::single(options); });
}

TEST(RuntimeWorld, Options) {
  WorldOptions options;
  options.threads = -1;
  expect_error(Code::invalid_argument, {"threads = -1", "0 (one a core) or more"},
               [&] { World::single(options); });
  options = {};
  options.deadline = -5ms;
  expect_error(Code::invalid_argument, {"deadline (ms) = -5", "0 (none) or more"},
               [&] { World::single(options); });
  options = {};
  options.first_deadline = -7ms;
  expect_error(Code::invalid_argument, {"deadline (ms) = -7"}, [&] { World::virtual_ranks(2, options); });
  options = {};
  options.policy_file = "/nonexistent/policy.json";
  expect_error(Code::file, {"/nonexistent/policy.json"}, [&] { World::single(options); });
}

TEST(RuntimeWorld, StreamsOfRanks) {
  const World world = World::virtual_ranks(2);
  for (int rank : {-1, 2}) {
    expect_error(Code::invalid_argument, {fmt::format("rank = {}", rank), "0 to 1"},
                 [&] { world.main_stream(rank); });
    expect_error(Code::invalid_argument, {fmt::format("rank = {}", rank), "0 to 1"},
                 [&] { world.side_stream(rank); });
  }
  EXPECT_TRUE(world.main_stream(0));
  EXPECT_FALSE(Stream());
  expect_error(Code::invalid_argument, {"stream = empty"}, [] { Stream().launch([] {}); });
  expect_error(Code::invalid_argument, {"stream = empty"}, [] { Stream().synchronize(); });
  expect_error(Code::invalid_argument, {"stream = empty"}, [&] { world.main_stream(0).join(Stream()); });
  expect_error(Code::invalid_argument, {"stream = empty"}, [&] { Stream().join(world.main_stream(0)); });
}

TEST(RuntimeWorld, StreamsRunInOrderAndJoin) {
  const World world = World::virtual_ranks(2);
  std::vector<int> order;  // written by one stream after the other, never by both at once
  for (int i = 0; i < 50; ++i) world.side_stream(0).launch([&order, i] { order.push_back(i); });
  world.main_stream(1).join(world.side_stream(0));
  for (int i = 50; i < 100; ++i) world.main_stream(1).launch([&order, i] { order.push_back(i); });
  world.main_stream(1).join(world.main_stream(1));  // with itself: nothing to wait for
  world.main_stream(1).synchronize();
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(RuntimeWorld, WhatALaunchThrowsSurfaces) {
  const World world = World::virtual_ranks(2);
  world.main_stream(0).launch([] { base::bad_argument("token", 9, "0 to 1"); });
  world.main_stream(0).launch([] { base::bad_argument("token", 10, "0 to 1"); });
  expect_error(Code::invalid_argument, {"token = 9"}, [&] { world.main_stream(0).synchronize(); });
  world.main_stream(0).synchronize();  // told once
  world.main_stream(1).launch([] { throw std::runtime_error("a user's own"); });
  expect_error(Code::fault, {"rank1.main", "a user's own"}, [&] { world.main_stream(1).synchronize(); });
  bool ran = false;
  world.side_stream(0).launch([] { throw 3; });
  world.side_stream(1).launch([&] {
    std::this_thread::sleep_for(20ms);
    ran = true;
  });
  expect_error(Code::fault, {"rank0.side"}, [&] { world.synchronize(); });
  EXPECT_TRUE(ran) << "all streams are waited for, whatever the first one says";
  world.synchronize();
}

// --- boxes

TEST(RuntimeBoxes, OneForEachRank) {
  const World world = World::virtual_ranks(4);
  const Shape shape = small_shape(4);
  const auto boxes = world.make_boxes(shape);
  ASSERT_EQ(boxes.size(), 4u);
  for (int rank = 0; rank < 4; ++rank) {
    const TailBox& box = boxes[static_cast<std::size_t>(rank)];
    EXPECT_EQ(box.rank(), rank);
    EXPECT_EQ(box.shape().hidden, shape.hidden);
    EXPECT_EQ(box.bytes(), protocol::make_layout(shape).total_bytes);
    EXPECT_FALSE(box.status());
  }
}

TEST(RuntimeBoxes, EveryShapeRuleIsStated) {
  const World world = World::virtual_ranks(2);
  struct Case {
    int Shape::*field;
    int value;
    std::vector<std::string> parts;
  };
  for (const Case& c :
       {Case{&Shape::hidden, 100, {"hidden = 100", "a multiple of 8 * ranks"}},
        Case{&Shape::hidden, 8, {"hidden = 8", "a multiple of 8 * ranks"}},
        Case{&Shape::latent, 100, {"latent = 100", "a multiple of 8"}},
        Case{&Shape::top_k, 0, {"top_k = 0", "1 to 64"}}, Case{&Shape::top_k, 65, {"top_k = 65", "1 to 64"}},
        Case{&Shape::capacity, 0, {"capacity = 0", "1 to 65535"}},
        Case{&Shape::capacity, 70000, {"capacity = 70000", "1 to 65535"}},
        Case{&Shape::poll_capacity, 9, {"poll_capacity = 9", "0 to capacity"}},
        Case{&Shape::ranks, 3, {"ranks = 3", "1, 2, 4, 8 or 16"}},
        Case{&Shape::ranks, 1, {"shape.ranks = 1", "2, as in this world"}}}) {
    Shape shape = small_shape(2);
    shape.*c.field = c.value;
    expect_error(Code::invalid_argument, c.parts, [&] { world.make_boxes(shape); });
  }
  for (float eps : {-1.0f, 2.0f, std::numeric_limits<float>::quiet_NaN()}) {
    Shape shape = small_shape(2);
    shape.eps = eps;
    expect_error(Code::invalid_argument, {fmt::format("eps = {}", eps), "0 to 1"},
                 [&] { world.make_boxes(shape); });
  }
  record_fault("shapes that break a rule", kHost, 13, "refused by name");
}

TEST(RuntimeBoxes, CopiesAsTheEnvironmentAsks) {
  const World world = World::virtual_ranks(2);
  for (const char* value : {"2", "yes", "01"}) {
    setenv("MOETAIL_MULTICAST", value, 1);
    expect_error(Code::invalid_argument, {std::string("MOETAIL_MULTICAST = ") + value, "0 or 1"},
                 [&] { world.make_boxes(small_shape(2)); });
  }
  for (const char* value : {"0", "1", ""}) {
    setenv("MOETAIL_MULTICAST", value, 1);
    const auto boxes = world.make_boxes(small_shape(2));
    const bool one_copy = boxes[0].impl()->box->view().common != nullptr;
    EXPECT_EQ(one_copy, *value != '0') << value;
    EXPECT_EQ(boxes[0].impl()->box->view().common, boxes[1].impl()->box->view().common);
  }
  unsetenv("MOETAIL_MULTICAST");
}

TEST(RuntimeBoxes, MemoryThatIsNotThereIsAnError) {
  Shape shape = small_shape(16);
  shape.hidden = protocol::kMaxColumns;
  shape.latent = protocol::kMaxColumns;
  shape.top_k = 64;
  shape.capacity = protocol::kMaxCapacity;
  shape.poll_capacity = protocol::kMaxCapacity;
  // 3 * 65535 * 64 * 2^20 polled rows of two bytes: more than a process can address.
  expect_error(Code::resource, {"mailboxes, heap", "bytes of memory"},
               [&] { World::virtual_ranks(16).make_boxes(shape); });
  record_fault("mailboxes that do not fit the machine", kHost, 1, "refused by name");
}

// Handles may go in any order while calls are still running: whoever is last waits for them.
TEST(RuntimeBoxes, HandlesMayGoBeforeTheirCallsHaveRun) {
  const Shape shape = small_shape(2);
  const auto layer = verify::make_layer(shape, 1, 0, 1);
  const auto inputs = verify::make_inputs(shape, 3, 1, 0);
  std::vector<std::vector<Bf16>> first,
      outputs(2, std::vector<Bf16>(static_cast<std::size_t>(3 * shape.hidden)));
  for (int round = 0; round < 20; ++round) {
    {
      std::optional<World> world = World::virtual_ranks(2);
      auto boxes = world->make_boxes(shape);
      std::vector<PreparedTail> tails;
      std::vector<RankCall> calls;
      for (int rank = 0; rank < 2; ++rank)
        tails.emplace_back(boxes[static_cast<std::size_t>(rank)],
                           TailWeights::from_full(shape, rank, layer.w_up, layer.gamma));
      for (std::size_t rank = 0; rank < 2; ++rank) {
        Call call;
        call.batch = 3;
        call.mode = Mode::publish;
        call.routed = Routed::expanded(inputs.arrays[rank].rows,
                                       std::span<const float>(inputs.arrays[rank].weights_fp32));
        tails[rank].push(inputs.arrays[rank].shared, 3, Mode::publish,
                         world->side_stream(static_cast<int>(rank)));
        calls.push_back({&tails[rank], call});
      }
      const auto views = world->run(calls);
      for (std::size_t rank = 0; rank < 2; ++rank) boxes[rank].take(views[rank], outputs[rank]);
      if (round % 2 == 0) world.reset();
      if (round % 3 == 0) boxes.clear();
    }
    if (round == 0) first = outputs;
    EXPECT_EQ(outputs, first) << round;
    EXPECT_EQ(outputs[0], outputs[1]);
  }
}

}  // namespace
}  // namespace moetail::testing
