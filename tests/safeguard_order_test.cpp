// SPDX-License-Identifier: Apache-2.0
// The safeguards that keep calls in step: the order of launches (src/protocol/order.hpp) and the headers that ranks compare. As in
// safeguard_test.cpp, each test has to fail in the build that leaves its safeguard out.
#include "tests/hooks.hpp"
#include "tests/safeguard_testing.hpp"

namespace moetail::testing {
namespace {

using protocol::FaultKind;

// The main streams are held while four calls are enqueued, each with a push from the side stream: only the order keeps a push from
// running ahead of the calls before it, with an epoch that is not its own.
TEST(Safeguard, PushOrder) {
  Harness harness(shape_of(2), with_deadline());
  CallOptions options;
  options.mode = Mode::publish;
  options.side_push = true;
  std::vector<std::pair<const verify::CallInputs*, const Outputs*>> calls;
  {
    const HeldStreams held(harness.world());
    for (std::uint64_t call = 0; call < 4; ++call) {
      options.seed = 10 + call;
      const auto& inputs = harness.make_inputs(2, options);
      calls.emplace_back(&inputs, &harness.enqueue(2, inputs, options));
    }
    std::this_thread::sleep_for(kPatience);
  }
  expect_no_fault(harness.world());
  for (const auto& [inputs, outputs] : calls) expect_rows(harness, 2, *inputs, options, *outputs);
}

// A user who asks for the next tail before the consumer of this call: refused, and then made in order.
TEST(Safeguard, ConsumerOrder) {
  Harness harness(shape_of(2), with_deadline());
  CallOptions options;
  for (std::uint64_t call = 0; call < 2; ++call) {
    options.seed = 10 + call;
    harness.check(2, options);
  }
  std::vector<const verify::CallInputs*> inputs;
  for (std::uint64_t call = 2; call < 4; ++call) {
    options.seed = 10 + call;
    inputs.push_back(&harness.make_inputs(2, options));
  }
  const auto first = harness.world().run(harness.prepare(2, *inputs[0], options));
  std::vector<OutView> second;
  try {
    second = harness.world().run(harness.prepare(2, *inputs[1], options));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::call_order);
  }
  std::vector<const Outputs*> outputs = {&harness.consume(first, options)};
  if (second.empty()) second = harness.world().run(harness.prepare(2, *inputs[1], options));
  outputs.push_back(&harness.consume(second, options));
  expect_no_fault(harness.world());
  for (std::size_t call = 0; call < 2; ++call)
    expect_rows(harness, 2, *inputs[call], options, *outputs[call]);
}

// After three calls rank 1 comes with another batch, as a process of its own may.
TEST(Safeguard, HeaderCheck) {
  Harness harness(shape_of(2), with_deadline());
  CallOptions options;
  for (int call = 0; call < 3; ++call) harness.check(2, options);
  {
    const HeldStreams held(harness.world());
    for (int rank = 0; rank < 2; ++rank) {
      const int batch = rank == 0 ? 2 : 3;
      const RankCall call = harness.prepare_rank(rank, batch, harness.make_inputs(batch, options), options);
      runtime::RankRun run{"run", call.tail->impl(), call.call};
      runtime::check_run(run);
      runtime::enqueue_runs({&run, 1});
    }
  }
  EXPECT_THROW(harness.world().synchronize(), Error);
  int first_hand = 0;
  for (const TailBox& box : harness.boxes()) {
    const auto report = box.status();
    EXPECT_TRUE(report) << "rank " << box.rank() << " went on with a call that no other rank made";
    if (!report) continue;
    if (report->record.kind == FaultKind::poisoned) continue;
    EXPECT_EQ(report->record.kind, FaultKind::header_mismatch) << report->text();
    EXPECT_EQ(report->record.field, protocol::HeaderField::batch) << report->text();
    ++first_hand;
  }
  EXPECT_GT(first_hand, 0);
}

}  // namespace
}  // namespace moetail::testing
