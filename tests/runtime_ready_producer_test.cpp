// SPDX-License-Identifier: Apache-2.0
// publish_rows and fill_rows: the producers that the library brings along give the bits of calls that are given rows.
#include <gmock/gmock.h>

#include "tests/expect_error.hpp"
#include "tests/harness.hpp"
#include "tests/variants.hpp"
#include "verify/exact.hpp"

namespace moetail::testing {
namespace {

constexpr int kReadyBatch = 3;

class RuntimeReadyProducer : public ::testing::Test {
 protected:
  RuntimeReadyProducer() : harness_(small_shape(2)) {}

  std::size_t elements(int columns) const {
    return static_cast<std::size_t>(kReadyBatch) * static_cast<std::size_t>(columns);
  }
  /// Runs what the producers were enqueued for, and compares with `reference` on every rank.
  void expect_rows(const CallOptions& options, const std::vector<Bf16>& reference) {
    std::vector<RankCall> calls;
    for (int rank = 0; rank < 2; ++rank) {
      Call call;
      call.batch = kReadyBatch;
      call.mode = options.mode;
      call.routed = Routed::published();
      calls.push_back({&harness_.tail(rank), call});
    }
    const Outputs& outputs = harness_.consume(harness_.world().run(calls), options);
    harness_.world().synchronize();
    for (const auto& rows : outputs) EXPECT_EQ(rows, reference);
  }

  Harness harness_;
};

TEST_F(RuntimeReadyProducer, PublishesFinalizedRows) {
  for (const Mode mode : {Mode::publish, Mode::twoshot}) {
    CallOptions options;
    options.mode = mode;
    const auto reference = harness_.check(kReadyBatch, options);
    for (int round = 0; round < 4; ++round) {
      const auto& inputs = harness_.make_inputs(kReadyBatch, options);
      verify::Problem problem{harness_.shape(),
                              kReadyBatch,
                              false,
                              inputs.ranks,
                              harness_.weights().w_up.data(),
                              harness_.weights().gamma.data()};
      std::vector<std::vector<Bf16>> partials;
      for (int rank = 0; rank < 2; ++rank) partials.push_back(verify::exact_partial(problem, rank));
      for (int rank = 0; rank < 2; ++rank) {
        const PreparedTail& tail = harness_.tail(rank);
        const auto& arrays = inputs.arrays[static_cast<std::size_t>(rank)];
        tail.push(arrays.shared, kReadyBatch, mode);
        publish_rows(tail.publish(kReadyBatch, mode), harness_.world().main_stream(rank),
                     partials[static_cast<std::size_t>(rank)]);
      }
      expect_rows(options, reference);
    }
  }
}

TEST_F(RuntimeReadyProducer, FillsThePolledSlots) {
  CallOptions options;
  options.mode = Mode::front_poll;
  options.inputs.form = Form::permuted;
  options.inputs.dropped_share = 0.4;
  const auto reference = harness_.check(kReadyBatch, options);
  for (int round = 0; round < 4; ++round) {
    const auto& inputs = harness_.make_inputs(kReadyBatch, options);
    for (int rank = 0; rank < 2; ++rank) {
      const auto& arrays = inputs.arrays[static_cast<std::size_t>(rank)];
      const PollSlots slots = harness_.tail(rank).poll_slots(kReadyBatch, Mode::front_poll).value();
      // From the side stream in every second round, as polled experts run.
      const Stream main = harness_.world().main_stream(rank), side = harness_.world().side_stream(rank);
      side.join(main);
      fill_rows(slots, round % 2 == 0 ? main : side,
                Routed::permuted(arrays.rows, arrays.map, std::span<const float>(arrays.weights_fp32)),
                arrays.shared);
      main.join(side);
    }
    expect_rows(options, reference);
  }
}

TEST_F(RuntimeReadyProducer, WrongStreamsFormsAndRows) {
  const Stream main = harness_.world().main_stream(0), other = harness_.world().main_stream(1);
  std::vector<Bf16> rows(elements(harness_.shape().latent)), shared(elements(harness_.shape().hidden));
  const PublishTargets targets = harness_.tail(0).publish(kReadyBatch);
  expect_error(Code::invalid_argument, {"publish_rows: stream = empty", "rank 0"},
               [&] { publish_rows(targets, {}, rows); });
  expect_error(Code::invalid_argument, {"publish_rows: stream of rank = 1", "rank 0"},
               [&] { publish_rows(targets, other, rows); });
  expect_error(Code::invalid_argument, {"rows: size = 239", "at least 240"},
               [&] { publish_rows(targets, main, std::span(rows).first(239)); });
  expect_error(Code::invalid_argument, {"engine = null", "publish or poll_slots"},
               [&] { publish_rows({}, main, rows); });
  harness_.world().recover(harness_.boxes());
  const PollSlots slots = harness_.tail(0).poll_slots(kReadyBatch, Mode::front_poll).value();
  expect_error(Code::invalid_argument, {"routed.form = partial", "rows or permuted"},
               [&] { fill_rows(slots, main, Routed::finalized(rows), shared); });
  const std::vector<Bf16> routed(elements(harness_.shape().latent) * 5);
  const std::vector<float> weights(static_cast<std::size_t>(kReadyBatch) * 5);
  const auto expanded = Routed::expanded(routed, std::span<const float>(weights));
  expect_error(Code::invalid_argument, {"shared: size = 143", "at least 144"},
               [&] { fill_rows(slots, main, expanded, std::span(shared).first(143)); });
  expect_error(Code::invalid_argument, {"fill_rows: stream of rank = 1"},
               [&] { fill_rows(slots, other, expanded, shared); });
  harness_.world().recover(harness_.boxes());
  harness_.check(kReadyBatch, CallOptions{});
}

TEST_F(RuntimeReadyProducer, HeadersForAUsersCompilerAreComplete) {
  std::vector<std::string> names;
  for (const DeviceHeader& header : device_headers()) {
    names.push_back(header.name);
    EXPECT_THAT(header.text, ::testing::HasSubstr("SPDX-License-Identifier"));
  }
  EXPECT_THAT(names, ::testing::IsSupersetOf({"moetail/device/publish.cuh", "moetail/device/fill.cuh",
                                              "moetail/device/consume.cuh", "device/publisher.hpp",
                                              "protocol/targets.hpp"}));
  for (const std::string& name : names) EXPECT_NE(name.rfind("kernels/", 0), 0u) << name;
}

TEST(RuntimeNativeStream, TheCpuEngineHasNone) {
  const World world = World::virtual_ranks(2);
  EXPECT_EQ(world.main_stream(0).native(), nullptr);
  expect_error(Code::invalid_argument, {"stream = empty"}, [] { Stream().native(); });
  int somebody = 0;
  WorldOptions options;
  options.cuda_stream = &somebody;
  expect_error(Code::invalid_argument, {"cuda_stream", "engine = cuda"},
               [&] { World::virtual_ranks(2, options); });
}

TEST(RuntimePut, OnlyAReplayedRankMayBeAskedForOne) {
  WorldOptions options;
  for (const auto& [put, name] :
       {std::pair{Put::unicast, "unicast"}, std::pair{Put::multicast, "multicast"}}) {
    options.put = put;
    expect_error(Code::invalid_argument, {"put = ", name, "World::replay"},
                 [&] { World::virtual_ranks(2, options); });
  }
}

}  // namespace
}  // namespace moetail::testing
