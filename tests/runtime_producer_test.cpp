// SPDX-License-Identifier: Apache-2.0
// A user's own producers and consumers on the rank's stream: what they may pass, and every way to share the
// work with the library.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/expect_error.hpp"
#include "tests/harness.hpp"
#include "tests/hooks.hpp"
#include "tests/variants.hpp"
#include "verify/exact.hpp"

namespace moetail::testing {
namespace {

using namespace std::chrono_literals;

constexpr int kProducerBatch = 3;

class RuntimeProducer : public ::testing::Test {
 protected:
  RuntimeProducer() : harness_(small_shape(2)) {}

  std::size_t latent() const { return static_cast<std::size_t>(harness_.shape().latent); }
  std::size_t hidden() const { return static_cast<std::size_t>(harness_.shape().hidden); }
  std::span<const Bf16> row_of(const std::vector<Bf16>& rows, int row, std::size_t columns) const {
    return std::span<const Bf16>(rows).subspan(static_cast<std::size_t>(row) * columns, columns);
  }
  void judge(const verify::CallInputs& inputs, const CallOptions& options,
             const std::vector<RankCall>& calls) {
    const Outputs& outputs = harness_.consume(harness_.world().run(calls), options);
    harness_.world().synchronize();
    EXPECT_EQ(harness_.judge(kProducerBatch, inputs, options, outputs), "");
  }

  Harness harness_;
};

TEST_F(RuntimeProducer, WrongTokensRoutesAndRows) {
  const Shape& shape = harness_.shape();  // H = 48, L = 80, K = 5
  const std::vector<Bf16> latent_row(latent() + 8), hidden_row(hidden() + 8);
  std::vector<Bf16> out_row(hidden() + 8);
  const std::span<const Bf16> good{latent_row.data(), latent()}, good_hidden{hidden_row.data(), hidden()};
  const PublishTargets targets = harness_.tail(0).publish(kProducerBatch);
  for (int token : {-1, 3})
    expect_error(Code::invalid_argument, {fmt::format("token = {}", token), "0 to 2"},
                 [&] { publish_partial(targets, token, good); });
  expect_error(Code::invalid_argument, {"row: size = 79", "at least 80"},
               [&] { publish_partial(targets, 0, good.first(79)); });
  expect_error(Code::invalid_argument, {"row = null"}, [&] {
    publish_partial(targets, 0, {static_cast<const Bf16*>(nullptr), latent()});
  });
  expect_error(Code::invalid_argument, {"row = 0x", "16 bytes"}, [&] {
    publish_partial(targets, 0, {latent_row.data() + 1, latent()});
  });
  PublishTargets nobody = targets;
  nobody.engine = nullptr;
  expect_error(Code::invalid_argument, {"engine = null", "publish"},
               [&] { publish_partial(nobody, 0, good); });
  harness_.world().recover(harness_.boxes());

  const PollSlots slots = harness_.tail(0).poll_slots(kProducerBatch, Mode::front_poll).value();
  for (int token : {-1, 3}) {
    const std::vector<std::string> parts = {fmt::format("token = {}", token), "0 to 2"};
    expect_error(Code::invalid_argument, parts, [&] { fill_route(slots, token, 0, good, 1.0f); });
    expect_error(Code::invalid_argument, parts, [&] { fill_dropped_route(slots, token, 0); });
    expect_error(Code::invalid_argument, parts, [&] { fill_shared(slots, token, good_hidden); });
  }
  for (int k : {-1, shape.top_k}) {
    const std::vector<std::string> parts = {fmt::format("k = {}", k), "0 to 4"};
    expect_error(Code::invalid_argument, parts, [&] { fill_route(slots, 0, k, good, 1.0f); });
    expect_error(Code::invalid_argument, parts, [&] { fill_dropped_route(slots, 0, k); });
  }
  expect_error(Code::invalid_argument, {"row: size = 79", "at least 80"},
               [&] { fill_route(slots, 0, 0, good.first(79), 1.0f); });
  expect_error(Code::invalid_argument, {"row: size = 47", "at least 48"},
               [&] { fill_shared(slots, 0, good_hidden.first(47)); });
  harness_.world().recover(harness_.boxes());

  CallOptions options;
  const auto& inputs = harness_.make_inputs(kProducerBatch, options);
  const auto views = harness_.world().run(harness_.prepare(kProducerBatch, inputs, options));
  const OutConsumer consumer = harness_.boxes()[0].consumer(views[0]);
  EXPECT_EQ(consumer.call, 1u);
  harness_.world().main_stream(0).synchronize();
  for (int token : {-1, 3})
    expect_error(Code::invalid_argument, {fmt::format("token = {}", token), "0 to 2"}, [&] {
      consume_row(consumer, token, {out_row.data(), hidden()});
    });
  expect_error(Code::invalid_argument, {"row: size = 47", "at least 48"}, [&] {
    consume_row(consumer, 0, {out_row.data(), 47});
  });
  expect_error(Code::invalid_argument, {"row = 0x", "16 bytes"}, [&] {
    consume_row(consumer, 0, {out_row.data() + 1, hidden()});
  });
  harness_.world().synchronize();
  harness_.world().recover(harness_.boxes());
  harness_.check(kProducerBatch, options);
}

// An error of a producer in its launch surfaces at the next synchronization of its stream.
TEST_F(RuntimeProducer, ErrorsInALaunchSurface) {
  const PublishTargets targets = harness_.tail(1).publish(kProducerBatch);
  harness_.world().main_stream(1).launch([&] { publish_partial(targets, 7, {}); });
  expect_error(Code::invalid_argument, {"token = 7", "0 to 2"}, [&] { harness_.world().synchronize(); });
  harness_.world().recover(harness_.boxes());
  harness_.check(kProducerBatch, CallOptions{});
}

// Routes in any order, one by one and late; shared rows too.
TEST_F(RuntimeProducer, SlotsFilledInAnyOrder) {
  CallOptions options;
  options.mode = Mode::front_poll;
  options.inputs.form = Form::permuted;
  options.inputs.dropped_share = 0.4;
  const auto reference = harness_.check(kProducerBatch, options);
  for (int round = 0; round < 4; ++round) {
    const auto& inputs = harness_.make_inputs(kProducerBatch, options);
    std::vector<RankCall> calls;
    for (int rank = 0; rank < 2; ++rank) {
      const PollSlots slots = harness_.tail(rank).poll_slots(kProducerBatch).value();
      Stream producer = harness_.world().side_stream(rank);
      producer.join(harness_.world().main_stream(rank));
      producer.launch([&, slots, rank, round] {
        const auto& input = inputs.ranks[static_cast<std::size_t>(rank)];
        const int top_k = harness_.shape().top_k, routes = kProducerBatch * top_k;
        for (int i = 0; i < routes; ++i) {
          const int route = (i * 7 + round) % routes;  // 7 and 15 have no common factor
          const int token = route / top_k, k = route % top_k;
          if (i % 5 == round) std::this_thread::sleep_for(2ms);
          if (route % top_k == 2)
            fill_shared(slots, token,
                        row_of(inputs.arrays[static_cast<std::size_t>(rank)].shared, token, hidden()));
          const Bf16* row = verify::route_row(input, harness_.shape(), token, k);
          if (row == nullptr)
            fill_dropped_route(slots, token, k);
          else
            fill_route(slots, token, k, {row, latent()}, verify::route_weight(input, token, k));
        }
      });
      Call call;
      call.batch = kProducerBatch;
      call.routed = Routed::published();
      calls.push_back({&harness_.tail(rank), call});
    }
    const Outputs& outputs = harness_.consume(harness_.world().run(calls), options);
    harness_.world().synchronize();
    for (const auto& rows : outputs) EXPECT_EQ(rows, reference);
  }
}

// In front_poll mode either half may come from the user: polled rows with a pushed shared partial, a
// finalized partial with polled shared rows. Neither may leave anything behind.
TEST_F(RuntimeProducer, HalfOfTheInputPolled) {
  CallOptions options;
  options.mode = Mode::front_poll;
  options.inputs.form = Form::partial;
  for (int round = 0; round < 5; ++round) {
    SCOPED_TRACE(round);
    options.seed = static_cast<std::uint64_t>(round + 1);
    const auto& inputs = harness_.make_inputs(kProducerBatch, options);
    std::vector<RankCall> calls;
    for (int rank = 0; rank < 2; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      const PollSlots slots = harness_.tail(rank).poll_slots(kProducerBatch).value();
      harness_.world().main_stream(rank).launch([&inputs, slots, r, this] {
        for (int token = 0; token < kProducerBatch; ++token)
          fill_shared(slots, token, row_of(inputs.arrays[r].shared, token, hidden()));
      });
      Call call;
      call.batch = kProducerBatch;
      call.routed = Routed::finalized(inputs.arrays[r].partial);
      calls.push_back({&harness_.tail(rank), call});
    }
    judge(inputs, options, calls);

    CallOptions polled = options;
    polled.inputs.form = Form::expanded;
    const auto& routed = harness_.make_inputs(kProducerBatch, polled);
    calls.clear();
    for (int rank = 0; rank < 2; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      harness_.tail(rank).push(routed.arrays[r].shared, kProducerBatch, Mode::front_poll);
      const PollSlots slots = harness_.tail(rank).poll_slots(kProducerBatch).value();
      harness_.world().main_stream(rank).launch([&routed, slots, r, this] {
        for (int route = 0; route < kProducerBatch * 5; ++route)
          fill_route(slots, route / 5, route % 5, row_of(routed.arrays[r].rows, route, latent()),
                     routed.arrays[r].weights_fp32[static_cast<std::size_t>(route)]);
      });
      Call call;
      call.batch = kProducerBatch;
      calls.push_back({&harness_.tail(rank), call});
    }
    judge(routed, polled, calls);
  }
}

// push may be called at every batch: in the front modes run uses the buffer it was given.
TEST_F(RuntimeProducer, PushIsRememberedInFrontMode) {
  for (bool side : {false, true})
    for (Mode mode : {Mode::front, Mode::front_poll, Mode::automatic}) {
      CallOptions options;
      options.mode = mode;
      options.side_push = side;
      harness_.check(kProducerBatch, options);
    }
}

// Left to the policy, whoever asks for destinations first has a publish call, whoever asks for slots a
// front_poll call.
TEST_F(RuntimeProducer, TheFirstToAskFixesTheMode) {
  CallOptions options;
  options.mode = Mode::automatic;
  options.inputs.form = Form::partial;
  for (bool slots_first : {false, true}) {
    SiteLog log;
    harness_.set_hooks(&log);
    const auto& inputs = harness_.make_inputs(kProducerBatch, options);
    std::vector<RankCall> calls;
    for (int rank = 0; rank < 2; ++rank) {
      if (slots_first)
        EXPECT_TRUE(harness_.tail(rank).poll_slots(kProducerBatch));
      else
        EXPECT_FALSE(harness_.tail(rank).publish(kProducerBatch).twoshot);
      calls.push_back(harness_.prepare_rank(rank, kProducerBatch, inputs, options));
    }
    const OutView view = [&] {
      const auto views = harness_.world().run(calls);
      const Outputs& outputs = harness_.consume(views, options);
      harness_.world().synchronize();
      EXPECT_EQ(harness_.judge(kProducerBatch, inputs, options, outputs), "");
      return views[0];
    }();
    EXPECT_EQ(view.batch, kProducerBatch);
    const auto record =
        protocol::unpack_record(*harness_.state(0).view.control(protocol::record_word(view.call - 1)));
    EXPECT_EQ(record.batch, kProducerBatch);
    harness_.set_hooks(nullptr);
    // The header of the call, in the mailbox of its slot, says what ran.
    const auto* word = harness_.state(0).view.mine<protocol::u32>(protocol::Region::header,
                                                                  protocol::slot_of(view.call - 1), 1, 0);
    const auto header = protocol::unpack_header(static_cast<protocol::u64>(word[1]) << 32 | word[0]);
    EXPECT_EQ(header.mode, static_cast<unsigned>(slots_first ? Mode::front_poll : Mode::publish));
    EXPECT_EQ(header.batch, static_cast<unsigned>(kProducerBatch));
    EXPECT_EQ(header.layer, 1u);
  }
}

// The struct of destinations may be kept and used again, as a captured graph does: the epoch is read when a
// row is published.
TEST_F(RuntimeProducer, TargetsMayBeKept) {
  for (Mode mode : {Mode::publish, Mode::twoshot}) {
    CallOptions options;
    options.mode = mode;
    options.inputs.form = Form::published;
    std::vector<PublishTargets> targets;
    for (int round = 0; round < 5; ++round) {
      options.seed = static_cast<std::uint64_t>(round + 1);
      const auto& inputs = harness_.make_inputs(kProducerBatch, options);
      const auto problem =
          verify::make_problem(harness_.shape(), kProducerBatch, false, inputs, harness_.weights());
      std::vector<std::vector<Bf16>> partials;
      std::vector<RankCall> calls;
      for (int rank = 0; rank < 2; ++rank) partials.push_back(verify::exact_partial(problem, rank));
      for (int rank = 0; rank < 2; ++rank) {
        const auto r = static_cast<std::size_t>(rank);
        harness_.tail(rank).push(inputs.arrays[r].shared, kProducerBatch, mode);
        if (round == 0) targets.push_back(harness_.tail(rank).publish(kProducerBatch, mode));
        harness_.world().main_stream(rank).launch([&partials, target = targets[r], r, this] {
          for (int token = kProducerBatch - 1; token >= 0; --token)
            publish_partial(target, token, row_of(partials[r], token, latent()));
        });
        Call call;
        call.batch = kProducerBatch;
        calls.push_back({&harness_.tail(rank), call});
      }
      judge(inputs, options, calls);
    }
  }
}

}  // namespace
}  // namespace moetail::testing
