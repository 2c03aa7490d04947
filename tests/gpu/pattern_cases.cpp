// SPDX-License-Identifier: Apache-2.0
// Every 16-bit pattern in every kind of input: no fault, equal bits on all ranks, NaN and Inf exactly where plain fp32 evaluation in the
// contract's order has them.
#include <mutex>

#include "tests/gpu/rig.hpp"
#include "tests/value_classes.hpp"
#include "verify/emulate.hpp"
#include "verify/oracle.hpp"
#include "verify/parallel.hpp"

namespace moetail::gpu {
namespace {

constexpr std::size_t kPatterns = 0x10000;
constexpr int kBatch = 16;
constexpr std::size_t kWindow = 64;  // calls between two looks of the host

Shape pattern_shape() {
  Shape shape;
  shape.hidden = 512;
  shape.latent = 256;
  shape.ranks = 2;
  shape.top_k = 16;
  shape.capacity = kBatch;
  shape.poll_capacity = kBatch;
  return shape;
}

/// A call's inputs on the host, and its layer's gamma.
struct Given {
  verify::CallInputs inputs;
  verify::LayerWeights weights;
};

/// A kind of input: which array, and where pattern `i` of a call goes in it.
struct Kind {
  const char* name;
  int batch;
  std::size_t patterns_a_call;
  /// A weight near the largest number makes a whole row as large, and whether a dot of such a row leaves fp32's range on the way depends
  /// on the order of its sum, which is the engine's own: the oracle, which knows that, judges alone.
  bool by_oracle;
  std::vector<u16>& (*values)(Given&);
  const void* (*on_device)(const DeviceInputs&);
  std::size_t (*at)(const Shape&, std::size_t i);
};

std::size_t latent_of(const Shape& shape) {
  return static_cast<std::size_t>(shape.latent);
}
std::size_t top_k_of(const Shape& shape) {
  return static_cast<std::size_t>(shape.top_k);
}

// An element of the shared partial or of the residual decides one element of the output, so that as many as there are fit a call. A
// routed row's and a weight's decides its token, and gamma's the call.
std::vector<Kind> kinds() {
  const std::size_t outputs =
      static_cast<std::size_t>(kBatch) * static_cast<std::size_t>(pattern_shape().hidden);
  return {
      {"routed row", kBatch, kBatch, false,
       [](Given& given) -> std::vector<u16>& { return given.inputs.arrays[1].rows; },
       [](const DeviceInputs& inputs) -> const void* { return inputs.ranks[1].rows; },
       [](const Shape& s, std::size_t token) { return (token * top_k_of(s) + 1) * latent_of(s) + 9; }},
      {"routing weight", kBatch, kBatch, true,
       [](Given& given) -> std::vector<u16>& { return given.inputs.arrays[1].weights_bf16; },
       [](const DeviceInputs& inputs) -> const void* { return inputs.ranks[1].weights; },
       [](const Shape& s, std::size_t token) { return token * top_k_of(s) + 2; }},
      {"gamma", 1, 1, false, [](Given& given) -> std::vector<u16>& { return given.weights.gamma; },
       [](const DeviceInputs& inputs) -> const void* { return inputs.ranks[0].norm; },
       [](const Shape&, std::size_t) { return std::size_t{11}; }},
      {"shared partial", kBatch, outputs, false,
       [](Given& given) -> std::vector<u16>& { return given.inputs.arrays[1].shared; },
       [](const DeviceInputs& inputs) -> const void* { return inputs.ranks[1].shared; },
       [](const Shape&, std::size_t i) { return i; }},
      {"residual", kBatch, outputs, false,
       [](Given& given) -> std::vector<u16>& { return given.inputs.residual; },
       [](const DeviceInputs& inputs) -> const void* { return inputs.ranks[0].residual; },
       [](const Shape&, std::size_t i) { return i; }},
  };
}

Given given_of(const Call& call) {
  verify::InputOptions options;
  options.weight_type = WeightType::bf16;
  options.residual = true;
  return {verify::make_inputs(pattern_shape(), call.batch, call.seed, 0, options),
          verify::make_layer(pattern_shape(), 1, 0)};
}

/// Puts the patterns from `begin` on where they belong; the last one fills up.
void spoil(const Kind& kind, const std::vector<u16>& patterns, std::size_t begin, Given& given) {
  for (std::size_t i = 0; i < kind.patterns_a_call; ++i)
    kind.values(given)[kind.at(pattern_shape(), i)] = patterns[std::min(begin + i, patterns.size() - 1)];
}

/// Runs a call for each `patterns_a_call` patterns. Returns every call's rows, equal on all ranks.
std::vector<std::vector<u16>> run(const Gpu& gpu, Call call, const Kind& kind,
                                  const std::vector<u16>& patterns) {
  call.batch = kind.batch;
  Rig rig(gpu, pattern_shape(), World::loopback);
  rig.warm_up({call});
  const auto inputs = rig.upload(call);
  const auto to = reinterpret_cast<cuda::abi::DevicePtr>(kind.on_device(inputs));
  auto given = given_of(call);
  std::vector<std::vector<cuda::DeviceMemory>> window;
  for (std::size_t i = 0; i < kWindow; ++i) window.push_back(rig.make_destinations(call.batch));
  std::vector<std::vector<u16>> rows;
  std::size_t enqueued = 0;
  const auto look = [&] {
    rig.synchronize();
    rig.require_no_fault();
    for (std::size_t i = 0; i < enqueued; ++i) rows.push_back(rig.equal_rows(window[i], call.batch));
    enqueued = 0;
  };
  for (std::size_t begin = 0; begin < patterns.size(); begin += kind.patterns_a_call) {
    spoil(kind, patterns, begin, given);
    const auto& values = kind.values(given);
    gpu.stream->copy(to, values.data(), values.size() * sizeof(u16));
    rig.enqueue(call, inputs);
    rig.consume(call, inputs, window[enqueued]);
    if (++enqueued == kWindow) look();
  }
  look();
  return rows;
}

/// Throws where a call's rows are not what plain evaluation, or the oracle, says.
void judge(Call call, const Kind& kind, const std::vector<u16>& patterns,
           const std::vector<std::vector<u16>>& rows) {
  call.batch = kind.batch;
  std::mutex mutex;
  std::string first;
  verify::for_parts(rows.size(), 1, [&](int, u64 part_begin, u64 part_end) {
    auto given = given_of(call);
    for (u64 i = part_begin; i < part_end; ++i) {
      const auto begin = static_cast<std::size_t>(i) * kind.patterns_a_call;
      spoil(kind, patterns, begin, given);
      const auto problem = verify::make_problem(pattern_shape(), call.batch, call.mode == Mode::twoshot,
                                                given.inputs, given.weights);
      std::string wrong;
      if (kind.by_oracle) {
        const auto report = verify::check_rows(verify::expect(problem), rows[i]);
        if (!report.passes()) wrong = report.text();
      } else {
        wrong = testing::other_class(verify::emulate(problem), rows[i]);
      }
      const std::lock_guard lock(mutex);
      if (!wrong.empty() && first.empty())
        first = fmt::format("{} {}, patterns from {:#06x}: {}", protocol::mode_name(call.mode), kind.name,
                            patterns[begin], wrong);
    }
  });
  require(first.empty(), "{}", first);
}

std::vector<u16> patterns_of(const Kind& kind, const Call& call) {
  // What costs a token or a call is tried in full in front, which has every kernel's arithmetic but two-shot's rounding, and by the ends
  // of the classes and every 61st value in the other modes.
  const bool all = kind.patterns_a_call > kBatch || (call.mode == Mode::front && !call.shares_reduced);
  std::vector<u16> patterns;
  for (std::size_t i = 0; i < kPatterns; ++i) {
    const auto value = static_cast<u16>(i);
    if (few_calls ? i % 2999 == 0 : all || testing::is_at_an_end(value) || i % 61 == 0)
      patterns.push_back(value);
  }
  return patterns;
}

void try_kind(const Gpu& gpu, std::size_t which) {
  const Kind kind = kinds()[which];
  std::vector<Call> calls(5);
  calls[1].shares_reduced = true;
  calls[2].mode = Mode::publish;
  calls[3].mode = Mode::twoshot;
  calls[4].mode = Mode::front_poll;
  std::size_t tried = 0;
  for (auto& call : calls) {
    call.residual = true;
    call.weights = WeightType::bf16;
    const auto patterns = patterns_of(kind, call);
    auto rows = run(gpu, call, kind, patterns);
    judge(call, kind, patterns, rows);
    tried += patterns.size();
    // The control: rows that lost a NaN, or have one too many, do not pass.
    auto& value = rows.front().front();
    value = testing::class_of(value) == testing::Class::nan ? 0x3F80 : 0x7FFF;
    bool seen = false;
    try {
      judge(call, kind, patterns, {rows.front()});
    } catch (const Failure&) {
      seen = true;
    }
    require(seen, "{}: a value of another class passes", kind.name);
  }
  fmt::print("  tried {}: patterns as {}\n", tried, kind.name);
}

}  // namespace

std::vector<Case> pattern_cases() {
  return {{"patterns.routed_row", [](const Gpu& gpu) { try_kind(gpu, 0); }},
          {"patterns.routing_weight", [](const Gpu& gpu) { try_kind(gpu, 1); }},
          {"patterns.gamma", [](const Gpu& gpu) { try_kind(gpu, 2); }},
          {"patterns.shared_partial", [](const Gpu& gpu) { try_kind(gpu, 3); }},
          {"patterns.residual", [](const Gpu& gpu) { try_kind(gpu, 4); }}};
}

}  // namespace moetail::gpu
