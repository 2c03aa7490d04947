// SPDX-License-Identifier: Apache-2.0
// Random shapes, groups and sequences of calls on one box against the oracle. RapidCheck prints the seed and
// the smallest case that fails; RC_PARAMS="seed=..." runs it again.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "tests/harness.hpp"
#include "tests/hooks.hpp"
#include "tests/record.hpp"

namespace moetail::testing {
namespace {

struct RandomCall {
  int batch = 1;
  CallOptions options;
  bool synchronize = false;
};

Shape random_shape() {
  Shape shape;
  shape.ranks = *rc::gen::weightedElement<int>({{4, 1}, {4, 2}, {4, 4}, {2, 8}, {1, 16}});
  shape.hidden = 8 * shape.ranks * *rc::gen::inRange(1, 9);
  shape.latent =
      *rc::gen::arbitrary<bool>() ? 8 * shape.ranks * *rc::gen::inRange(1, 9) : 8 * *rc::gen::inRange(1, 40);
  shape.top_k = *rc::gen::weightedOneOf<int>(
      {{6, rc::gen::inRange(1, 9)}, {1, rc::gen::inRange(1, protocol::kMaxTopK + 1)}});
  shape.capacity = *rc::gen::inRange(1, 12);
  shape.poll_capacity = *rc::gen::inRange(0, shape.capacity + 1);
  shape.eps = *rc::gen::element(0.0f, 1e-6f, 1e-5f, 1e-2f);
  return shape;
}

RandomCall random_call(const Shape& shape, int layers) {
  RandomCall call;
  call.batch = *rc::gen::inRange(1, shape.capacity + 1);
  std::vector<Mode> modes = {Mode::front, Mode::publish};
  if (call.batch <= shape.poll_capacity) modes.push_back(Mode::front_poll);
  if (protocol::allows_twoshot(shape)) modes.push_back(Mode::twoshot);
  call.options.mode = *rc::gen::elementOf(modes);
  const int forms = call.options.mode == Mode::front ? 3 : 4;
  call.options.inputs.form = static_cast<Form>(*rc::gen::inRange(0, forms));
  call.options.inputs.weight_type = *rc::gen::element(WeightType::bf16, WeightType::fp32);
  call.options.inputs.residual = *rc::gen::arbitrary<bool>();
  call.options.inputs.dropped_share = *rc::gen::element(0.0, 0.1, 0.7, 1.0);
  call.options.inputs.spare_rows = *rc::gen::inRange(0, 3);
  call.options.seed = *rc::gen::arbitrary<std::uint64_t>();
  call.options.layer = *rc::gen::inRange(0, layers);
  call.options.side_push = *rc::gen::arbitrary<bool>();
  call.options.consume_in_place = *rc::gen::arbitrary<bool>();
  call.synchronize = *rc::gen::arbitrary<bool>();
  return call;
}

std::string describe(const RandomCall& call) {
  return fmt::format("B={} {} {} layer {}{}{}{}", call.batch, protocol::mode_name(call.options.mode),
                     protocol::form_name(call.options.inputs.form), call.options.layer,
                     call.options.side_push ? " side push" : "",
                     call.options.consume_in_place ? " consumed in place" : "",
                     call.options.inputs.residual ? " residual" : "");
}

void run_sequence(cpu::Hooks* hooks) {
  const Shape shape = random_shape();
  HarnessOptions harness_options;
  harness_options.layers = *rc::gen::inRange(1, 4);
  harness_options.world.threads = shape.ranks * *rc::gen::inRange(1, shape.ranks > 4 ? 3 : 5);
  harness_options.policy = fmt::format(R"({{"share_from": {}}})", *rc::gen::inRange(1, shape.capacity + 2));
  harness_options.own_copies = *rc::gen::arbitrary<bool>();
  RC_TAG(shape.ranks);
  Harness harness(shape, harness_options);
  harness.set_hooks(hooks);

  const int num_calls = *rc::gen::inRange(1, 10);
  std::vector<RandomCall> calls;
  for (int i = 0; i < num_calls; ++i) calls.push_back(random_call(shape, harness_options.layers));
  RC_LOG(fmt::format("T={} H={} L={} K={} C={} PC={}, {} threads, policy {}, {}", shape.ranks, shape.hidden,
                     shape.latent, shape.top_k, shape.capacity, shape.poll_capacity,
                     harness_options.world.threads, harness_options.policy,
                     harness_options.own_copies ? "own copies" : "one copy"));
  std::vector<std::pair<const verify::CallInputs*, const Outputs*>> done;
  for (const RandomCall& call : calls) {
    const auto& inputs = harness.make_inputs(call.batch, call.options);
    done.emplace_back(&inputs, &harness.enqueue(call.batch, inputs, call.options));
    if (call.synchronize) harness.world().synchronize();
  }
  harness.world().synchronize();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const std::string text = harness.judge(calls[i].batch, *done[i].first, calls[i].options, *done[i].second);
    RC_LOG(fmt::format("call {}: {}: {}", i + 1, describe(calls[i]), text));
    RC_ASSERT(text.empty());
  }
}

RC_GTEST_PROP(EngineRandom, SequencesOfCallsAgreeWithTheOracle, ()) {
  static std::uint64_t tries = 0;
  run_sequence(nullptr);
  record_fault("shapes and call sequences (RapidCheck)", kThreads, ++tries,
               "as the oracle says, equal on all ranks");
}

RC_GTEST_PROP(EngineRandom, SequencesUnderRandomStallsAgreeWithTheOracle, ()) {
  RandomStalls stalls(*rc::gen::arbitrary<std::uint64_t>(), std::chrono::microseconds(300));
  static std::uint64_t tries = 0;
  run_sequence(&stalls);
  record_fault("shapes and call sequences under random stalls (RapidCheck)", kThreads, ++tries,
               "as the oracle says, equal on all ranks");
}

}  // namespace
}  // namespace moetail::testing
