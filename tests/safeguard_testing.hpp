// SPDX-License-Identifier: Apache-2.0
// What the tests of the safeguards share: two ranks of two clusters each, deadlines that end what a missing safeguard lets hang, and
// schedules that are forced by test hooks.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "tests/harness.hpp"

namespace moetail::testing {

// Where a safeguard is missing, a rank waits for what was erased: the deadline ends that and is the failure.
inline constexpr auto kDeadline = std::chrono::milliseconds(2000);
// A schedule that a safeguard makes impossible is waited for this long, then the rank goes on.
inline constexpr auto kPatience = std::chrono::milliseconds(300);

inline Shape shape_of(int ranks) {
  Shape shape;
  shape.hidden = 128 * ranks;
  shape.latent = 64 * ranks;
  shape.ranks = ranks;
  shape.top_k = 4;
  shape.capacity = 8;
  shape.poll_capacity = 8;
  return shape;
}

/// Two clusters a rank, where there are two ranks.
inline HarnessOptions with_deadline() {
  HarnessOptions options;
  options.world.deadline = kDeadline;
  options.world.first_deadline = kDeadline;
  options.world.threads = 4;
  return options;
}

/// Waits until `is_there` says so, `limit` at most.
template <class IsThere>
bool wait_until_true(IsThere&& is_there, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!is_there() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return is_there();
}
inline bool wait_for(const std::atomic<bool>& flag, std::chrono::milliseconds limit) {
  return wait_until_true([&] { return flag.load(); }, limit);
}

inline void expect_no_fault(const World& world) {
  try {
    world.synchronize();
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
}

inline void expect_rows(Harness& harness, int batch, const verify::CallInputs& inputs,
                        const CallOptions& options, const Outputs& outputs) {
  const auto problem =
      verify::make_problem(harness.shape(), batch, options.mode == Mode::twoshot, inputs, harness.weights());
  const auto expected = verify::expect(problem, {}, verify::RankSum::rank_order, 1);
  for (int rank = 0; rank < harness.shape().ranks; ++rank) {
    const auto rows = verify::check_rows(expected, outputs[static_cast<std::size_t>(rank)], rank);
    EXPECT_TRUE(rows.passes()) << rows.text();
  }
}

/// Four calls of `options`, enqueued without a look between them, then judged.
inline void run_four_calls(Harness& harness, CallOptions options, int batch = 2) {
  std::vector<std::pair<const verify::CallInputs*, const Outputs*>> calls;
  for (std::uint64_t call = 0; call < 4; ++call) {
    options.seed = 10 + call;
    const auto& inputs = harness.make_inputs(batch, options);
    calls.emplace_back(&inputs, &harness.enqueue(batch, inputs, options));
  }
  expect_no_fault(harness.world());
  for (const auto& [inputs, outputs] : calls) expect_rows(harness, batch, *inputs, options, *outputs);
}

/// A publish call of four tokens whose rows `publish_row(rank, token, targets, row)` puts into the mailboxes, on the ranks' main
/// streams; judged.
template <class PublishRow>
void run_published_call(Harness& harness, PublishRow&& publish_row) {
  CallOptions options;
  options.mode = Mode::publish;
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
      for (int token = 0; token < 4; ++token)
        publish_row(rank, token, targets,
                    std::span<const Bf16>(partial + static_cast<std::size_t>(token) * latent, latent));
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

}  // namespace moetail::testing
