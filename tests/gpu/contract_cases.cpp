// SPDX-License-Identifier: Apache-2.0
// The numeric contract against the CPU engine's arithmetic: partial, x and the shared sums bit for bit (any NaN equals any other),
// `out` as near as another order of the dot products lets it be. And values that other systems hang on or change.
#include <algorithm>
#include <cmath>

#include "engine/cpu/arith.hpp"
#include "protocol/numerics.hpp"
#include "protocol/sentinel.hpp"
#include "tests/gpu/rig.hpp"

namespace moetail::gpu {
namespace {

using protocol::Region;

std::size_t size_of(int value) {
  return static_cast<std::size_t>(value);
}

std::vector<u16> cleaned(std::vector<u16> values) {
  for (std::size_t i = 0; i + 1 < values.size(); i += 2) {
    const auto word = protocol::cleaned(static_cast<protocol::u32>(values[i]) |
                                        static_cast<protocol::u32>(values[i + 1]) << 16);
    values[i] = static_cast<u16>(word);
    values[i + 1] = static_cast<u16>(word >> 16);
  }
  return values;
}

/// A rank's partial [B, L] by the CPU engine.
std::vector<u16> cpu_partial(const Shape& shape, const Call& call, const verify::RankInput& input) {
  std::vector<u16> partial(size_of(call.batch) * size_of(shape.latent));
  if (input.form == Form::partial)
    return cleaned(std::vector<u16>(input.partial, input.partial + partial.size()));
  std::vector<const u16*> rows(size_of(shape.top_k));
  std::vector<float> weights(rows.size());
  for (int b = 0; b < call.batch; ++b) {
    for (int k = 0; k < shape.top_k; ++k) {
      rows[size_of(k)] = verify::route_row(input, shape, b, k);
      weights[size_of(k)] = verify::route_weight(input, b, k);
    }
    cpu::arith().finalize(rows.data(), weights.data(), shape.top_k, 0, shape.latent,
                          partial.data() + size_of(b) * size_of(shape.latent));
  }
  return partial;
}

/// Sums of one array of every rank, [B, columns].
std::vector<float> cpu_sums(const std::vector<std::vector<u16>>& ranks, int batch, int columns) {
  std::vector<float> sums(size_of(batch) * size_of(columns));
  for (std::size_t at = 0; at < sums.size(); at += size_of(columns)) {
    std::vector<const u16*> rows;
    for (const auto& values : ranks) rows.push_back(values.data() + at);
    cpu::arith().sum_rows(rows.data(), static_cast<int>(rows.size()), columns, sums.data() + at);
  }
  return sums;
}

/// What the CPU engine makes of a call, from end to end.
struct CpuCall {
  std::vector<std::vector<u16>> partial, shared;
  std::vector<float> x, shared_sums;

  CpuCall(const Shape& shape, const Call& call, const verify::CallInputs& inputs) {
    for (const auto& rank : inputs.ranks) {
      partial.push_back(cpu_partial(shape, call, rank));
      shared.push_back(
          cleaned(std::vector<u16>(rank.shared, rank.shared + size_of(call.batch) * size_of(shape.hidden))));
    }
    x = cpu_sums(partial, call.batch, shape.latent);
    shared_sums = cpu_sums(shared, call.batch, shape.hidden);
  }

  std::vector<u16> out(const Shape& shape, const Call& call, const verify::LayerWeights& weights) const {
    const auto latent = size_of(shape.latent), hidden = size_of(shape.hidden);
    std::vector<u16> rows(size_of(call.batch) * hidden), operand(latent);
    std::vector<float> dot(hidden), taken(latent);
    for (std::size_t b = 0; b < size_of(call.batch); ++b) {
      for (std::size_t c = 0; c < latent; ++c) {
        taken[c] = x[b * latent + c];
        if (call.mode == Mode::twoshot) taken[c] = protocol::f32_from_bf16(protocol::bf16_from_f32(taken[c]));
      }
      const float square =
          cpu::arith().norm_operand(taken.data(), weights.gamma.data(), shape.latent, operand.data());
      cpu::arith().dot(weights.w_up.data(), operand.data(), shape.latent, shape.hidden, 1, dot.data(),
                       shape.hidden);
      const float scale = 1.0f / std::sqrt(square / static_cast<float>(shape.latent) + shape.eps);
      cpu::arith().finish(dot.data(), scale, shared_sums.data() + b * hidden, nullptr, shape.hidden,
                          rows.data() + b * hidden);
    }
    return rows;
  }
};

template <class T>
std::vector<T> read(const Rig& rig, int rank, Region region, int slot, int source, int batch) {
  const auto bytes = rig.mailbox(rank, region, slot, source, batch);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<u8*>(values.data()));
  return values;
}

/// Columns [begin, begin + count) of [B, columns].
std::vector<u16> cut(const std::vector<u16>& values, int columns, int begin, int count) {
  std::vector<u16> part;
  for (std::size_t at = size_of(begin); at < values.size(); at += size_of(columns))
    part.insert(part.end(), values.begin() + static_cast<std::ptrdiff_t>(at),
                values.begin() + static_cast<std::ptrdiff_t>(at) + count);
  return part;
}

template <class T>
void require_bits(const char* what, int rank, const std::vector<T>& expected, const std::vector<T>& seen) {
  const auto report = verify::compare_bits(std::span<const T>(expected), std::span<const T>(seen),
                                           static_cast<int>(expected.size()), rank, verify::NanRule::any_nan);
  require(report.passes(), "{}: {}", what, report.text());
}

/// What the call that used `slot` left in every rank's mailboxes.
void require_mailboxes(const Rig& rig, const Call& call, const CpuCall& cpu, int slot) {
  const Shape& shape = rig.shape();
  for (int rank = 0; rank < shape.ranks; ++rank) {
    for (int source = 0; source < shape.ranks; ++source) {
      const auto& partial = cpu.partial[size_of(source)];
      if (call.mode == Mode::twoshot)
        require_bits("chunk of a partial", rank,
                     cut(partial, shape.latent, rank * shape.chunk(), shape.chunk()),
                     read<u16>(rig, rank, Region::recv, slot, source, call.batch));
      else
        require_bits("partial", rank, partial,
                     read<u16>(rig, rank, Region::latent, slot, source, call.batch));
      require_bits("shared shard", rank,
                   cut(cpu.shared[size_of(source)], shape.hidden, rank * shape.shard(), shape.shard()),
                   read<u16>(rig, rank, Region::shared, slot, source, call.batch));
    }
    if (call.mode == Mode::twoshot) {
      std::vector<u16> rounded;
      for (const float value : cpu.x) rounded.push_back(protocol::bf16_from_f32(value));
      require_bits("gathered x", rank, rounded, read<u16>(rig, rank, Region::gather, slot, 0, call.batch));
    } else if (call.shares_reduced) {
      require_bits("x", rank, cpu.x, read<float>(rig, rank, Region::reduced, slot, 0, call.batch));
    }
  }
}

void require_near(const Shape& shape, const std::vector<u16>& cpu, const std::vector<u16>& gpu) {
  const auto hidden = size_of(shape.hidden);
  std::size_t others = 0;
  for (std::size_t row = 0; row < cpu.size(); row += hidden) {
    double square = 0;
    for (std::size_t c = row; c < row + hidden; ++c)
      square += std::pow(static_cast<double>(protocol::f32_from_bf16(cpu[c])), 2);
    const double limit = std::ldexp(std::sqrt(square / static_cast<double>(hidden)), -18);
    for (std::size_t c = row; c < row + hidden; ++c) {
      const int ulps = verify::ulp_distance_bf16(cpu[c], gpu[c]);
      const double distance = std::abs(static_cast<double>(protocol::f32_from_bf16(cpu[c])) -
                                       static_cast<double>(protocol::f32_from_bf16(gpu[c])));
      require(ulps <= 1 || distance <= limit, "token {}, column {}: {:#x}, the CPU has {:#x}", row / hidden,
              c - row, gpu[c], cpu[c]);
      others += ulps != 0 ? 1 : 0;
    }
  }
  fmt::print("  {} of {} output elements other than on the CPU ({})\n", others, cpu.size(),
             cpu::arith().name);
  require(others * 1000 <= cpu.size(), "{} of {} elements differ", others, cpu.size());
}

std::vector<Call> variants(int batch) {
  std::vector<Call> calls(4);
  calls[0].shares_reduced = true;
  calls[1].mode = Mode::publish;
  calls[2].mode = Mode::twoshot;
  calls[3].mode = Mode::front_poll;
  for (auto& call : calls) call.batch = batch;
  return calls;
}

void bits(const Gpu& gpu, const Shape& shape, int batch) {
  Rig rig(gpu, shape, World::loopback);
  const std::vector<u16> zeros(size_of(shape.latent));
  const cuda::DeviceMemory no_gamma(gpu.context, zeros.size() * 2);
  gpu.stream->fill(no_gamma.address(), 0, zeros.size() / 2);
  const auto calls = variants(batch);
  rig.warm_up(calls);
  int slot = 0;
  for (auto call : calls) {
    call.seed = 50 + static_cast<u64>(slot);
    auto inputs = rig.upload(call);
    const CpuCall cpu(shape, call, inputs.host);
    const auto rows = rig.check(call, inputs);
    require_mailboxes(rig, call, cpu, slot++ % 3);
    require_near(shape, cpu.out(shape, call, rig.weights()), rows);
    // Without gamma there is nothing but the shared sums in the output.
    for (auto& rank : inputs.ranks) rank.norm = no_gamma.as<u16>();
    const auto destinations = rig.make_destinations(batch);
    rig.enqueue(call, inputs);
    rig.consume(call, inputs, destinations);
    rig.synchronize();
    rig.require_no_fault();
    ++slot;
    const auto sums = rig.equal_rows(destinations, batch);
    for (std::size_t i = 0; i < sums.size(); ++i)
      require(verify::ulp_distance_bf16(sums[i], protocol::bf16_from_f32(cpu.shared_sums[i])) == 0,
              "shared sum {}: {:#x}, the CPU has {:#x}", i, sums[i],
              protocol::bf16_from_f32(cpu.shared_sums[i]));
  }
}

void specials(const Gpu& gpu) {
  const Shape shape = small_shape(4);
  Rig rig(gpu, shape, World::loopback);
  std::vector<Call> calls;
  for (auto call : variants(3))
    for (const Form form : {Form::expanded, Form::permuted, Form::partial}) {
      call.form = form;
      if (form != Form::partial || call.mode != Mode::front_poll) calls.push_back(call);
    }
  rig.warm_up(calls);
  namespace special = verify::special;
  int slot = 0;
  for (auto call : calls)
    for (const auto kinds : {special::kFinite, special::kInfinity, special::kNan, special::kSentinel,
                             special::kNearSentinel, special::kAll})
      for (const double share : {0.002, 0.1, 1.0}) {
        call.specials = {kinds, share};
        call.seed = 200 + static_cast<u64>(slot);
        const auto inputs = rig.upload(call);
        const CpuCall cpu(shape, call, inputs.host);
        const auto destinations = rig.make_destinations(call.batch);
        rig.enqueue(call, inputs);
        rig.consume(call, inputs, destinations);
        rig.synchronize();
        try {
          rig.require_no_fault();
          rig.equal_rows(destinations, call.batch);
          require_mailboxes(rig, call, cpu, slot++ % 3);
        } catch (const Failure& failure) {
          throw Failure(fmt::format("{} {} kinds {:#x} share {}: {}", protocol::mode_name(call.mode),
                                    protocol::form_name(call.form), kinds, share, failure.what()));
        }
      }
}

}  // namespace

std::vector<Case> contract_cases() {
  return {{"contract.small.t4", [](const Gpu& gpu) { bits(gpu, small_shape(4), 3); }},
          {"contract.k3.t8", [](const Gpu& gpu) { bits(gpu, Shape{}, 4); }},
          {"contract.specials", specials}};
}

}  // namespace moetail::gpu
