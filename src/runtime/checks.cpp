// SPDX-License-Identifier: Apache-2.0
// Every check of a call's arguments, in one place.
#include <cstdint>

#include "base/error.hpp"
#include "engine/cpu/arith.hpp"
#include "engine/cuda/driver.hpp"
#include "runtime/impl.hpp"

namespace moetail::runtime {

void check_engine(Engine engine) {
  if (engine == Engine::cuda) {
    const cuda::Support support = cuda::cuda_support();
    if (!support.usable)
      base::fail(Code::unsupported, "engine = cuda: accepted is auto or cpu on this machine: {}",
                 support.reason);
    return;
  }
  // A wrong MOETAIL_CPU_TARGET is an error here, where somebody hears it, not in a launch.
  static_cast<void>(cpu::arith());
}

void check_shape(const Shape& shape) {
  const auto rule = protocol::first_broken_rule(shape);
  if (rule == protocol::ShapeRule::ok) return;
  const auto text = protocol::rule_text(rule);
  base::bad_argument(text.field, protocol::rule_value(shape, rule), text.accepted);
}

void check_batch(const Shape& shape, int batch) {
  if (batch < 0 || batch > shape.capacity)
    base::bad_argument("batch", batch, fmt::format("0 to the capacity, {}", shape.capacity));
}

void check_buffer(const char* name, const void* data, std::size_t count, std::size_t needed,
                  std::size_t alignment) {
  if (count < needed)
    base::bad_argument(fmt::format("{}: size", name), count, fmt::format("at least {} elements", needed));
  if (needed > 0 && data == nullptr) base::bad_argument(name, "null", "a pointer to the data");
  if (reinterpret_cast<std::uintptr_t>(data) % alignment != 0)
    base::bad_argument(name, data, fmt::format("a pointer aligned to {} bytes", alignment));
}

void check_routed(const Routed& routed, const Shape& shape, int batch) {
  const auto rows = static_cast<std::size_t>(batch), latent = static_cast<std::size_t>(shape.latent);
  const std::size_t routes = rows * static_cast<std::size_t>(shape.top_k);
  if (routed.form == Form::published) return;
  if (routed.form == Form::partial) {
    check_buffer("partial", routed.partial.data(), routed.partial.size(), rows * latent, 16);
    return;
  }
  if (!routed.weights_bf16.empty() && !routed.weights_fp32.empty())
    base::bad_argument("weights", "both bf16 and fp32", "one of them");
  if (!routed.weights_fp32.empty())
    check_buffer("weights", routed.weights_fp32.data(), routed.weights_fp32.size(), routes, alignof(float));
  else
    check_buffer("weights", routed.weights_bf16.data(), routed.weights_bf16.size(), routes, alignof(Bf16));
  if (routed.form == Form::expanded) {
    check_buffer("rows", routed.rows.data(), routed.rows.size(), routes * latent, 16);
    return;
  }
  if (routed.form != Form::permuted)
    base::bad_argument("routed.form", static_cast<int>(routed.form),
                       "expanded, permuted, partial or published");
  check_buffer("map", routed.map.data(), routed.map.size(), routes, alignof(std::int32_t));
  if (routed.rows.size() % latent != 0)
    base::bad_argument("rows: size", routed.rows.size(), fmt::format("a multiple of latent = {}", latent));
  if (routed.rows.size() / latent > static_cast<std::size_t>(INT32_MAX))
    base::bad_argument("rows: P", routed.rows.size() / latent, "at most 2147483647");
  check_buffer("rows", routed.rows.data(), routed.rows.size(), routed.rows.size(), 16);
}

void check_addresses(const engine::Box& box, const Routed& routed) {
  box.check_address("rows", routed.rows.data());
  box.check_address("map", routed.map.data());
  box.check_address("weights", routed.weights_bf16.data());
  box.check_address("weights", routed.weights_fp32.data());
  box.check_address("partial", routed.partial.data());
}

engine::RoutedInput routed_input(const Routed& routed, const Shape& shape) {
  engine::RoutedInput input;
  input.form = routed.form;
  input.rows = routed.rows.data();
  input.num_rows = static_cast<int>(routed.rows.size() / static_cast<std::size_t>(shape.latent));
  input.map = routed.map.data();
  const bool fp32 = !routed.weights_fp32.empty();
  input.weight_type = fp32 ? WeightType::fp32 : WeightType::bf16;
  input.weights = fp32 ? static_cast<const void*>(routed.weights_fp32.data()) : routed.weights_bf16.data();
  input.partial = routed.partial.data();
  return input;
}

void apply_policy(engine::TailCall& call, const Policy& policy, int ranks) {
  call.shares_reduced = policy.shares(call.mode, call.batch);
  call.kernel = policy.kernel_for(ranks, call.batch, call.mode, call.shares_reduced);
}

Mode resolve_mode(Mode requested, const Shape& shape, int batch, const Policy& policy) {
  switch (requested) {
    case Mode::automatic: return batch <= policy.front_limit(shape.ranks) ? Mode::front : Mode::publish;
    case Mode::front:
    case Mode::publish: return requested;
    case Mode::front_poll:
      if (batch > shape.poll_capacity)
        base::bad_argument("batch", batch,
                           fmt::format("at most poll_capacity = {} in front_poll mode", shape.poll_capacity));
      return requested;
    case Mode::twoshot:
      if (!protocol::allows_twoshot(shape)) {
        const auto text = protocol::rule_text(protocol::ShapeRule::latent_twoshot);
        base::bad_argument(text.field, shape.latent, text.accepted);
      }
      return requested;
  }
  base::bad_argument("mode", static_cast<int>(requested), "auto, front, front_poll, publish or twoshot");
}

std::shared_ptr<Stream::Impl> check_main_stream(const TailBox::Impl& box, const Stream& requested,
                                                const char* what) {
  const auto& main = box.rank_resources().main;
  const auto& wanted = requested ? requested.impl() : main;
  if (wanted->rank != box.rank)
    base::bad_argument(fmt::format("{}: stream of rank", what), wanted->rank,
                       fmt::format("a stream of rank {}", box.rank));
  if (wanted == box.rank_resources().side)
    base::fail(
        Code::busy,
        "{}: stream = {}: accepted is the box's main stream; the side stream takes push and publish only",
        what, wanted->stream->name());
  if (wanted != main)
    base::fail(Code::busy,
               "{}: stream = {} of another world: accepted is {} of its own, the box's one main stream", what,
               wanted->stream->name(), main->stream->name());
  return wanted;
}

void check_not_capturing(const engine::Stream& stream, const char* what) {
  if (stream.is_capturing())
    base::fail(Code::call_order, "{}: stream {} is capturing: accepted is before or after the capture", what,
               stream.name());
}

void check_no_fault(const TailBox::Impl& box) {
  if (const auto record = box.box->fault())
    base::fail(Code::fault, "{}; the box is poisoned until World::recover", FaultReport{*record}.text());
}

}  // namespace moetail::runtime
