// SPDX-License-Identifier: Apache-2.0
// Sequences of calls on one box: batches up and down, modes in turn, layers repeated and skipped, boxes and
// worlds side by side, thousands of calls that no host waits for.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/harness.hpp"
#include "tests/hooks.hpp"
#include "tests/record.hpp"
#include "tests/variants.hpp"

namespace moetail::testing {
namespace {

struct Made {
  int batch;
  CallOptions options;
  const verify::CallInputs* inputs;
  const Outputs* outputs;
};

/// Calls of one harness, judged together once all of them have run.
class Calls {
 public:
  explicit Calls(Harness& harness) : harness_(harness) {}

  void enqueue(int batch, CallOptions options) {
    options.seed = made_.size() + 1;
    const auto& inputs = harness_.make_inputs(batch, options);
    made_.push_back({batch, options, &inputs, &harness_.enqueue(batch, inputs, options)});
  }
  void judge() {
    harness_.world().synchronize();
    for (std::size_t i = 0; i < made_.size(); ++i) {
      const Made& made = made_[i];
      ASSERT_EQ(harness_.judge(made.batch, *made.inputs, made.options, *made.outputs), "")
          << "call " << i + 1 << ": B=" << made.batch << ' ' << protocol::mode_name(made.options.mode);
    }
  }

 private:
  Harness& harness_;
  std::vector<Made> made_;
};

CallOptions call_of(Mode mode, int layer = 0) {
  CallOptions options;
  options.mode = mode;
  options.layer = layer;
  return options;
}

std::uint64_t epoch_of(Harness& harness, int rank) {
  return *harness.state(rank).view.control(protocol::Control::epoch);
}

class EngineSequence : public ::testing::TestWithParam<int> {
 protected:
  HarnessOptions options() const {
    HarnessOptions options;
    options.policy = kSharePolicy;
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, EngineSequence, ::testing::Values(1, 2, 4), rank_name);
INSTANTIATE_TEST_SUITE_P(ManyRanksAtFullSize, EngineSequence, ::testing::Values(16), rank_name);

// What a large call dirtied has to be gone when the ring comes back to its slot, whatever smaller calls were
// between.
TEST_P(EngineSequence, BatchesUpAndDownInEveryMode) {
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.name);
    for (bool own_copies : {false, true}) {
      HarnessOptions harness_options = options();
      harness_options.own_copies = own_copies;
      Harness harness(small_shape(GetParam()), harness_options);
      Calls calls(harness);
      for (int batch = 1; batch <= 8; ++batch) calls.enqueue(batch, call_of(variant.mode));
      for (int batch = 7; batch >= 1; --batch) calls.enqueue(batch, call_of(variant.mode));
      for (int batch : {8, 1, 1, 8, 8, 1, 8, 1, 8}) calls.enqueue(batch, call_of(variant.mode));
      calls.judge();
    }
  }
}

// Every mode after every other one, with batches that jump: each call meets all kinds of leftovers in its
// slot.
TEST_P(EngineSequence, EveryModeAfterEveryOther) {
  for (bool own_copies : {false, true}) {
    HarnessOptions harness_options = options();
    harness_options.own_copies = own_copies;
    Harness harness(small_shape(GetParam()), harness_options);
    Calls calls(harness);
    const auto all = variants();
    for (std::size_t from = 0; from < all.size(); ++from)
      for (std::size_t to = 0; to < all.size(); ++to)
        for (int batch : {8, 2, 5}) {
          CallOptions first = call_of(all[from].mode);
          first.inputs.form = batch == 2 ? Form::permuted : Form::expanded;
          calls.enqueue(batch, first);
          calls.enqueue(9 - batch, call_of(all[to].mode));
        }
    calls.judge();
    EXPECT_EQ(epoch_of(harness, GetParam() - 1), 5u * 5u * 3u * 2u);
  }
}

TEST_P(EngineSequence, TheSameLayerAgainAndAgain) {
  for (int times : {1, 2, 3, 4, 7}) {
    SCOPED_TRACE(times);
    HarnessOptions two_layers = options();
    two_layers.layers = 2;
    Harness harness(small_shape(GetParam()), two_layers);
    Calls calls(harness);
    for (int step = 0; step < 3; ++step) {
      for (int i = 0; i < times; ++i) calls.enqueue(2, call_of(Mode::front, 0));
      calls.enqueue(3, call_of(Mode::publish, 1));
    }
    calls.judge();
  }
}

// Any number of layers, not only those that suit a ring of three; some of them left out in some steps.
TEST_P(EngineSequence, AnyNumberOfLayersSomeSkipped) {
  for (int layers : {1, 2, 3, 4, 5, 7}) {
    SCOPED_TRACE(layers);
    HarnessOptions several = options();
    several.layers = layers;
    Harness harness(small_shape(GetParam()), several);
    Calls calls(harness);
    for (int step = 0; step < 4; ++step)
      for (int layer = 0; layer < layers; ++layer)
        if ((step + layer) % 3 != 2) calls.enqueue(1 + (step + layer) % 4, call_of(Mode::front, layer));
    calls.judge();
  }
}

TEST_P(EngineSequence, CallsOfNoTokensLeaveTheEpochAlone) {
  Harness harness(small_shape(GetParam()), options());
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.name);
    harness.check(variant.batch, call_of(variant.mode));
    const auto epoch = epoch_of(harness, 0);
    std::vector<RankCall> calls;
    for (int rank = 0; rank < GetParam(); ++rank) {
      harness.tail(rank).push({}, 0, variant.mode);
      Call call;
      call.mode = variant.mode;
      calls.push_back({&harness.tail(rank), call});
    }
    const auto views = harness.world().run(calls);
    for (std::size_t rank = 0; rank < views.size(); ++rank) {
      EXPECT_EQ(views[rank].call, 0u);
      EXPECT_EQ(views[rank].batch, 0);
      if (rank % 2 == 0)
        harness.boxes()[rank].take(views[rank], {});
      else
        EXPECT_EQ(harness.boxes()[rank].consumer(views[rank]).batch, 0);
    }
    harness.world().synchronize();
    EXPECT_EQ(epoch_of(harness, 0), epoch);
    harness.check(variant.batch, call_of(variant.mode));
  }
  record_fault("B = 0 on all ranks", kThreads, variants().size(),
               "does nothing; the epoch stays; right results after it");
}

TEST_P(EngineSequence, EagerCallsWithAndWithoutAHostThatWaits) {
  HarnessOptions three_layers = options();
  three_layers.layers = 3;
  Harness harness(small_shape(GetParam()), three_layers);
  Calls calls(harness);
  for (int i = 0; i < 30; ++i) {
    CallOptions call = call_of(i % 4 == 0   ? Mode::twoshot
                               : i % 4 == 1 ? Mode::front_poll
                                            : Mode::publish,
                               i % 3);
    call.side_push = i % 3 == 1;
    call.consume_in_place = i % 2 == 1;
    call.inputs.form = i % 5 == 0 ? Form::published : Form::permuted;
    calls.enqueue(1 + i * 5 % 8, call);
    if (i % 7 == 0) harness.world().synchronize();
    if (i % 11 == 0) harness.world().main_stream(GetParam() - 1).synchronize();
  }
  calls.judge();
}

TEST_P(EngineSequence, TwoBoxesOfOneWorldInterleaved) {
  Harness first(small_shape(GetParam()), options());
  Shape other = small_shape(GetParam());
  other.hidden = 8 * GetParam();
  other.latent = 8 * GetParam() * 6;
  other.capacity = 3;
  other.poll_capacity = 2;
  Harness second(first.world(), other, options());
  Calls first_calls(first), second_calls(second);
  for (int i = 0; i < 20; ++i) {
    first_calls.enqueue(1 + i % 8, call_of(variants()[static_cast<std::size_t>(i % 5)].mode));
    if (i % 3 != 0)
      second_calls.enqueue(1 + i % 2, call_of(variants()[static_cast<std::size_t>(i % 4)].mode));
  }
  first_calls.judge();
  second_calls.judge();
}

TEST_P(EngineSequence, TwoWorldsInterleaved) {
  Harness first(small_shape(GetParam()), options()),
      second(small_shape(GetParam() == 1 ? 2 : GetParam() / 2));
  Calls first_calls(first), second_calls(second);
  for (int i = 0; i < 20; ++i) {
    first_calls.enqueue(1 + i % 8, call_of(variants()[static_cast<std::size_t>(i % 5)].mode));
    second_calls.enqueue(8 - i % 8, call_of(variants()[static_cast<std::size_t>((i + 2) % 5)].mode));
  }
  first_calls.judge();
  second_calls.judge();
}

// A model's layers over and over with nobody on the host waiting: every call has its own output.
void call_without_host_synchronization(std::size_t num_calls) {
  HarnessOptions harness_options;
  harness_options.policy = kSharePolicy;
  Harness harness(small_shape(2), harness_options);
  struct Kind {
    int batch;
    CallOptions options;
    const verify::CallInputs* inputs;
    std::vector<Bf16> bits;
  };
  std::vector<Kind> kinds;
  for (const Variant& variant : variants())
    for (int batch : {1, variant.batch}) {
      CallOptions options = call_of(variant.mode);
      options.seed = kinds.size() + 1;
      const auto& inputs = harness.make_inputs(batch, options);
      kinds.push_back({batch, options, &inputs, harness.check(batch, options)});
    }
  std::vector<std::pair<std::size_t, const Outputs*>> made;
  for (std::size_t call = 0; call < num_calls; ++call) {
    const std::size_t kind = verify::mix64(call) % kinds.size();
    made.emplace_back(kind, &harness.enqueue(kinds[kind].batch, *kinds[kind].inputs, kinds[kind].options));
  }
  harness.world().synchronize();
  for (std::size_t call = 0; call < made.size(); ++call)
    for (const auto& output : *made[call].second)
      ASSERT_EQ(output, kinds[made[call].first].bits) << "call " << call << " of kind " << made[call].first;
}

TEST(EngineSequences, TwoHundredCallsWithoutHostSynchronization) {
  call_without_host_synchronization(200);
}

TEST(EngineSequences, TwoThousandCallsWithoutHostSynchronizationAtFullSize) {
  call_without_host_synchronization(2000);
}

// One rank far ahead of another, and the other way round: the mailboxes alone keep them in step.
TEST(EngineSequences, AFastAndASlowRank) {
  for (int slow : {0, 3}) {
    HarnessOptions harness_options;
    harness_options.policy = kSharePolicy;
    Harness harness(small_shape(4), harness_options);
    Stall stall({protocol::Site::epoch, slow}, std::chrono::milliseconds(2));
    harness.set_hooks(&stall);
    Calls calls(harness);
    for (int i = 0; i < 25; ++i)
      calls.enqueue(1 + i % 8, call_of(variants()[static_cast<std::size_t>(i % 5)].mode));
    calls.judge();
    EXPECT_EQ(stall.stalls(), 25);
    harness.set_hooks(nullptr);
  }
  record_fault("a rank runs ahead of a slow one", kThreads, 50, "right results, none waited for by the host");
}

}  // namespace
}  // namespace moetail::testing
