// SPDX-License-Identifier: Apache-2.0
#include "tests/harness.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/env.hpp"
#include "verify/exact.hpp"

namespace moetail::testing {
namespace {

std::size_t count(int a, int b) {
  return static_cast<std::size_t>(a) * static_cast<std::size_t>(b);
}

World make_world(const Shape& shape, const HarnessOptions& options) {
  WorldOptions world = options.world;
  if (!options.policy.empty()) {
    world.policy_file = (std::filesystem::temp_directory_path() / "moetail-policy-XXXXXX").string();
    close(mkstemp(world.policy_file.data()));
    std::ofstream(world.policy_file) << options.policy;
  }
  const World made = shape.ranks == 1 ? World::single(world) : World::virtual_ranks(shape.ranks, world);
  if (!options.policy.empty()) std::filesystem::remove(world.policy_file);
  return made;
}

std::vector<TailBox> make_boxes(const World& world, const Shape& shape, bool own_copies) {
  setenv(base::kMulticast.name, own_copies ? "0" : "1", 1);
  auto boxes = world.make_boxes(shape);
  unsetenv(base::kMulticast.name);
  return boxes;
}

}  // namespace

Harness::Harness(const Shape& shape, const HarnessOptions& options)
    : Harness(make_world(shape, options), shape, options) {}

Harness::Harness(const World& world, const Shape& shape, const HarnessOptions& options)
    : shape_(shape), world_(world), boxes_(make_boxes(world_, shape, options.own_copies)) {
  for (int layer = 0; layer < options.layers; ++layer)
    weights_.push_back(verify::make_layer(shape, options.seed, layer, 1));
  for (int layer = 0; layer < options.layers; ++layer) {
    const auto& weights = weights_[static_cast<std::size_t>(layer)];
    std::vector<PreparedTail> row;
    for (const TailBox& box : boxes_)
      row.emplace_back(box, TailWeights::from_full(shape, box.rank(), weights.w_up, weights.gamma),
                       layer + 1);
    tails_.push_back(std::move(row));
  }
}

Harness::~Harness() {
  for (int rank = world_.first_rank(); rank < end_rank(); ++rank) {
    for (const Stream& stream : {world_.main_stream(rank), world_.side_stream(rank)}) {
      try {
        stream.synchronize();
      } catch (const std::exception&) {  // the test has seen it or does not want it
      }
    }
  }
}

verify::CallInputs& Harness::make_inputs(int batch, const CallOptions& options) {
  inputs_.push_back(std::make_unique<verify::CallInputs>(
      verify::make_inputs(shape_, batch, options.seed, options.layer, options.inputs)));
  return *inputs_.back();
}

Routed Harness::routed_of(const verify::RankInput& input, int batch) const {
  const std::size_t routes = count(batch, shape_.top_k);
  const std::span<const Bf16> rows{input.rows, count(input.num_rows, shape_.latent)};
  const std::span<const float> fp32{static_cast<const float*>(input.weights), routes};
  const std::span<const Bf16> bf16{static_cast<const Bf16*>(input.weights), routes};
  const bool is_fp32 = input.weight_type == WeightType::fp32;
  switch (input.form) {
    case Form::expanded: return is_fp32 ? Routed::expanded(rows, fp32) : Routed::expanded(rows, bf16);
    case Form::permuted: {
      const std::span<const std::int32_t> map{input.map, routes};
      return is_fp32 ? Routed::permuted(rows, map, fp32) : Routed::permuted(rows, map, bf16);
    }
    case Form::partial: return Routed::finalized({input.partial, count(batch, shape_.latent)});
    case Form::published: break;
  }
  return Routed::published();
}

void Harness::feed(int rank, int batch, const verify::CallInputs& inputs, const CallOptions& options) {
  PreparedTail& prepared = tail(rank, options.layer);
  const verify::RankInput& input = inputs.ranks[static_cast<std::size_t>(rank)];
  const Shape shape = shape_;
  if (options.mode == Mode::front_poll) {
    const PollSlots slots = prepared.poll_slots(batch, options.mode).value();
    world_.side_stream(rank).join(world_.main_stream(rank));
    world_.side_stream(rank).launch([slots, input, shape, batch] {
      for (int token = 0; token < batch; ++token) {
        fill_shared(slots, token,
                    {input.shared + count(token, shape.hidden), static_cast<std::size_t>(shape.hidden)});
        for (int k = 0; k < shape.top_k; ++k) {
          const Bf16* row = verify::route_row(input, shape, token, k);
          if (row == nullptr)
            fill_dropped_route(slots, token, k);
          else
            fill_route(slots, token, k, {row, static_cast<std::size_t>(shape.latent)},
                       verify::route_weight(input, token, k));
        }
      }
    });
    return;
  }
  const PublishTargets targets = prepared.publish(batch, options.mode);
  const verify::Problem problem = verify::make_problem(shape_, batch, false, inputs, weights(options.layer));
  partials_.push_back(std::make_unique<std::vector<Bf16>>(verify::exact_partial(problem, rank)));
  world_.main_stream(rank).launch([targets, rows = partials_.back()->data(), shape, batch] {
    for (int token = 0; token < batch; ++token)
      publish_partial(targets, token,
                      {rows + count(token, shape.latent), static_cast<std::size_t>(shape.latent)});
  });
}

RankCall Harness::prepare_rank(int rank, int batch, const verify::CallInputs& inputs,
                               const CallOptions& options) {
  const verify::RankInput& input = inputs.ranks[static_cast<std::size_t>(rank)];
  PreparedTail& prepared = tail(rank, options.layer);
  const std::size_t rows = count(batch, shape_.hidden);
  Call call;
  call.batch = batch;
  call.mode = options.mode;
  call.routed = routed_of(input, batch);
  if (input.residual != nullptr) call.residual = {input.residual, rows};
  const bool own_slots = options.mode == Mode::front_poll && input.form == Form::published;
  if (!own_slots)
    prepared.push({input.shared, rows}, batch, options.mode,
                  options.side_push ? world_.side_stream(rank) : Stream());
  if (input.form == Form::published) feed(rank, batch, inputs, options);
  return {&prepared, call};
}

std::vector<RankCall> Harness::prepare(int batch, const verify::CallInputs& inputs,
                                       const CallOptions& options) {
  std::vector<RankCall> calls;
  for (int rank = world_.first_rank(); rank < end_rank(); ++rank)
    calls.push_back(prepare_rank(rank, batch, inputs, options));
  return calls;
}

Outputs& Harness::consume(const std::vector<OutView>& views, const CallOptions& options) {
  outputs_.push_back(std::make_unique<Outputs>());
  Outputs& outputs = *outputs_.back();
  const auto hidden = static_cast<std::size_t>(shape_.hidden);
  for (const OutView& view : views) outputs.emplace_back(count(view.batch, view.hidden));
  for (std::size_t rank = 0; rank < views.size(); ++rank) {
    if (!options.consume_in_place) {
      boxes_[rank].take(views[rank], outputs[rank]);
      continue;
    }
    const OutConsumer consumer = boxes_[rank].consumer(views[rank]);
    world_.main_stream(views[rank].rank).launch([consumer, hidden, rows = outputs[rank].data()] {
      // Last row first: the order of rows is the consumer's own affair.
      for (int token = consumer.batch - 1; token >= 0; --token)
        consume_row(consumer, token, {rows + static_cast<std::size_t>(token) * hidden, hidden});
    });
  }
  return outputs;
}

Outputs& Harness::enqueue(int batch, const verify::CallInputs& inputs, const CallOptions& options) {
  return consume(world_.run(prepare(batch, inputs, options)), options);
}

Outputs Harness::run(int batch, const CallOptions& options) {
  const auto& inputs = make_inputs(batch, options);
  Outputs& outputs = enqueue(batch, inputs, options);
  world_.synchronize();
  return outputs;
}

verify::Expectation Harness::expect(int batch, const verify::CallInputs& inputs,
                                    const CallOptions& options) const {
  const auto problem =
      verify::make_problem(shape_, batch, options.mode == Mode::twoshot, inputs, weights(options.layer));
  return verify::expect(problem, {}, verify::RankSum::float64, 1);
}

std::string Harness::judge(int batch, const verify::CallInputs& inputs, const CallOptions& options,
                           const Outputs& outputs) const {
  std::string text;
  const auto rows = verify::check_rows(expect(batch, inputs, options), outputs[0]);
  if (!rows.passes()) text += rows.text() + "\n";
  for (int rank = 1; rank < shape_.ranks; ++rank) {
    const auto bits =
        verify::compare_bits(outputs[0], outputs[static_cast<std::size_t>(rank)], shape_.hidden, rank);
    if (!bits.passes()) text += bits.text() + "\n";
  }
  return text;
}

std::vector<Bf16> Harness::check(int batch, const CallOptions& options) {
  const auto& inputs = make_inputs(batch, options);
  const Outputs& outputs = enqueue(batch, inputs, options);
  world_.synchronize();
  EXPECT_EQ(judge(batch, inputs, options, outputs), "");
  return outputs[0];
}

void Harness::set_hooks(cpu::Hooks* hooks) {
  for (int rank = world_.first_rank(); rank < end_rank(); ++rank) state(rank).hooks = hooks;
}

}  // namespace moetail::testing
