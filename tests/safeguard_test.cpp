// SPDX-License-Identifier: Apache-2.0
// One test for each safeguard of src/protocol/safeguards.hpp. ctest runs them as they are, and once more in a build that leaves
// the safeguard out, where the named test has to fail (control.* in tests/CMakeLists.txt). Every schedule here is forced, not hoped for.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/harness.hpp"

namespace moetail::testing {
namespace {

using protocol::Site;
using namespace std::chrono_literals;

// Where a safeguard is missing, a rank waits for what was erased: the deadline ends that and is the failure.
constexpr auto kDeadline = 2000ms;

Shape shape_of(int ranks) {
  Shape shape;
  shape.hidden = 128 * ranks;
  shape.latent = 64 * ranks;
  shape.ranks = ranks;
  shape.top_k = 4;
  shape.capacity = 8;
  shape.poll_capacity = 8;
  return shape;
}

HarnessOptions with_deadline() {
  HarnessOptions options;
  options.world.deadline = kDeadline;
  options.world.first_deadline = kDeadline;
  return options;
}

/// Waits until `flag` is set, `limit` at most.
bool wait_for(const std::atomic<bool>& flag, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!flag.load() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
  return flag.load();
}

void expect_no_fault(const World& world) {
  try {
    world.synchronize();
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
}

void expect_rows(Harness& harness, int batch, const verify::CallInputs& inputs, const CallOptions& options,
                 const Outputs& outputs) {
  const auto problem =
      verify::make_problem(harness.shape(), batch, options.mode == Mode::twoshot, inputs, harness.weights());
  const auto expected = verify::expect(problem, {}, verify::RankSum::rank_order, 1);
  for (int rank = 0; rank < harness.shape().ranks; ++rank) {
    const auto rows = verify::check_rows(expected, outputs[static_cast<std::size_t>(rank)], rank);
    EXPECT_TRUE(rows.passes()) << rows.text();
  }
}

// A user's partial, shared row or polled row may hold the sentinel word. Published as it is, nobody would ever see it arrive.
TEST(Safeguard, SentinelCleanup) {
  Harness harness(shape_of(2), with_deadline());
  CallOptions options;
  options.inputs.form = Form::partial;
  options.inputs.specials = {verify::special::kSentinel, 0.05};
  const auto& inputs = harness.make_inputs(2, options);
  const Outputs& outputs = harness.enqueue(2, inputs, options);
  expect_no_fault(harness.world());
  expect_rows(harness, 2, inputs, options, outputs);
}

// Rank 0 is slow to re-arm after its output of call 1 has left; rank 1 has that output and publishes call 2 meanwhile.
TEST(Safeguard, ThirdSlot) {
  struct SlowRearm : cpu::Hooks {
    std::atomic<bool> peer_published = false;
    bool at(const cpu::SiteEvent& event) override {
      if (event.rank == 1 && event.epoch == 2 && event.site == Site::header_poll) peer_published.store(true);
      if (event.rank == 0 && event.epoch == 1 && event.site == Site::rearm) {
        EXPECT_TRUE(wait_for(peer_published, 5000ms))
            << "rank 1 never got ahead: the schedule was not reached";
      }
      return true;
    }
  } hooks;
  Harness harness(shape_of(2), with_deadline());
  harness.set_hooks(&hooks);
  std::vector<std::pair<const verify::CallInputs*, const Outputs*>> calls;
  CallOptions options;
  for (std::uint64_t call = 0; call < 4; ++call) {
    options.seed = 10 + call;
    const auto& inputs = harness.make_inputs(2, options);
    calls.emplace_back(&inputs, &harness.enqueue(2, inputs, options));
  }
  expect_no_fault(harness.world());
  for (const auto& [inputs, outputs] : calls) expect_rows(harness, 2, *inputs, options, *outputs);
}

// Four rows, then one, then four again in the slot of the first call. Rank 1 publishes its first row and holds back the others:
// rank 0 must wait for them, not take what call 0 left there.
TEST(Safeguard, RearmSize) {
  struct PastLatents : cpu::Hooks {
    std::atomic<bool> reached = false;
    bool at(const cpu::SiteEvent& event) override {
      if (event.rank == 0 && event.epoch == 3 && event.site == Site::shared_poll) reached.store(true);
      return true;
    }
  } hooks;
  Harness harness(shape_of(2), with_deadline());
  harness.set_hooks(&hooks);
  CallOptions options;
  options.mode = Mode::publish;
  for (int batch : {4, 1, 1}) {
    options.seed += 1;
    harness.check(batch, options);
  }
  options.inputs.form = Form::partial;
  options.seed = 77;
  const auto& inputs = harness.make_inputs(4, options);
  const Shape& shape = harness.shape();
  std::vector<RankCall> calls;
  Outputs outputs(2, std::vector<Bf16>(4 * static_cast<std::size_t>(shape.hidden)));
  for (int rank = 0; rank < 2; ++rank) {
    const auto& input = inputs.ranks[static_cast<std::size_t>(rank)];
    harness.tail(rank).push({input.shared, outputs[0].size()}, 4, Mode::publish);
    const PublishTargets targets = harness.tail(rank).publish(4, Mode::publish);
    harness.world().main_stream(rank).launch([&, rank, targets, partial = input.partial] {
      const auto latent = static_cast<std::size_t>(shape.latent);
      for (int token = 0; token < 4; ++token) {
        if (rank == 1 && token == 1) wait_for(hooks.reached, 300ms);
        publish_partial(targets, token, {partial + static_cast<std::size_t>(token) * latent, latent});
      }
    });
    Call call;
    call.batch = 4;
    call.mode = Mode::publish;
    calls.push_back({&harness.tail(rank), call});
  }
  const auto views = harness.world().run(calls);
  for (std::size_t rank = 0; rank < 2; ++rank) harness.boxes()[rank].take(views[rank], outputs[rank]);
  expect_no_fault(harness.world());
  expect_rows(harness, 4, inputs, options, outputs);
}

// fp32 addition is not associative: 2^24 + 1 - 2^24 + 1 is 1 in rank order and 2 from rank 1 on.
TEST(Safeguard, RankOrder) {
  Harness harness(shape_of(4), with_deadline());
  CallOptions options;
  options.inputs.form = Form::partial;
  auto& inputs = const_cast<verify::CallInputs&>(harness.make_inputs(1, options));
  constexpr Bf16 kAddends[4] = {0x4B80, 0x3F80, 0xCB80, 0x3F80};  // 2^24, 1, -2^24, 1
  for (std::size_t rank = 0; rank < 4; ++rank) {
    std::fill(inputs.arrays[rank].partial.begin(), inputs.arrays[rank].partial.end(), Bf16{0});
    std::fill(inputs.arrays[rank].shared.begin(), inputs.arrays[rank].shared.end(), kAddends[rank]);
  }
  const Outputs& outputs = harness.enqueue(1, inputs, options);
  expect_no_fault(harness.world());
  for (const auto& row : outputs)
    for (Bf16 value : row)
      ASSERT_EQ(value, 0x3F80) << "a sum of the shared partials that is not in rank order";
}

}  // namespace
}  // namespace moetail::testing
