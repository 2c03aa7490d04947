// SPDX-License-Identifier: Apache-2.0
// The CPU engine's arithmetic besides the up projection, one Kimi K3 row at a time. A program of its own for Google
// Benchmark.
#include <benchmark/benchmark.h>

#include <vector>

#include "engine/cpu/arith.hpp"
#include "verify/generate.hpp"

namespace moetail {
namespace {

using cpu::Bf16;

constexpr int kLatent = 3584, kHidden = 7168, kTopK = 16, kRanks = 8;

std::vector<Bf16> numbers(std::size_t count, std::uint64_t seed) {
  std::vector<Bf16> values(count);
  verify::fill_normal({seed, verify::Stream::own, 0, 0}, {1.0f, 0.0f}, 0, values);
  return values;
}

std::vector<const Bf16*> rows_of(const std::vector<Bf16>& values, int columns) {
  std::vector<const Bf16*> rows;
  for (std::size_t i = 0; i < values.size(); i += static_cast<std::size_t>(columns))
    rows.push_back(&values[i]);
  return rows;
}

// `sets` rows of experts in turn: 1 stays in the second level cache, 64 (7 MB) does not.
void finalize(benchmark::State& state) {
  const auto sets = static_cast<std::size_t>(state.range(0));
  const std::vector<Bf16> values = numbers(sets * kTopK * kLatent, 1);
  const std::vector<const Bf16*> rows = rows_of(values, kLatent);
  const std::vector<float> weights(kTopK, 1.0f / kTopK);
  std::vector<Bf16> out(kLatent);
  std::size_t set = 0;
  for (auto _ : state) {
    cpu::arith().finalize(&rows[set * kTopK], weights.data(), kTopK, 0, kLatent, out.data());
    benchmark::ClobberMemory();
    set = (set + 1) % sets;
  }
  state.SetLabel(cpu::arith().name);
  state.SetBytesProcessed(state.iterations() * kTopK * kLatent * 2);
}
BENCHMARK(finalize)->Arg(1)->Arg(64);

void sum_rows(benchmark::State& state) {
  const int columns = static_cast<int>(state.range(0));
  const std::vector<Bf16> values =
      numbers(static_cast<std::size_t>(kRanks) * static_cast<std::size_t>(columns), 2);
  const std::vector<const Bf16*> rows = rows_of(values, columns);
  std::vector<float> sum(static_cast<std::size_t>(columns));
  for (auto _ : state) {
    cpu::arith().sum_rows(rows.data(), kRanks, columns, sum.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * kRanks * columns * 2);
}
BENCHMARK(sum_rows)->Arg(kLatent)->Arg(kHidden / kRanks);

void norm_operand(benchmark::State& state) {
  const std::vector<float> x(kLatent, 0.5f);
  const std::vector<Bf16> gamma = numbers(kLatent, 3);
  std::vector<Bf16> operand(kLatent);
  for (auto _ : state) {
    benchmark::DoNotOptimize(cpu::arith().norm_operand(x.data(), gamma.data(), kLatent, operand.data()));
    benchmark::ClobberMemory();
  }
}
BENCHMARK(norm_operand);

void finish(benchmark::State& state) {
  constexpr int kColumns = kHidden / kRanks;
  const std::vector<float> dot(kColumns, 0.25f), shared(kColumns, 1.0f);
  const std::vector<Bf16> residual = numbers(kColumns, 4);
  std::vector<Bf16> out(kColumns);
  for (auto _ : state) {
    cpu::arith().finish(dot.data(), 0.5f, shared.data(), residual.data(), kColumns, out.data());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(finish);

// One rank's shard times `tokens` operands; 16 shards in turn (103 MB), so that weights come from memory.
void dot(benchmark::State& state) {
  constexpr int kRows = kHidden / kRanks, kShards = 16;
  const int tokens = static_cast<int>(state.range(0));
  const std::vector<Bf16> weights = numbers(std::size_t{kShards} * kRows * kLatent, 5);
  const std::vector<Bf16> operand = numbers(static_cast<std::size_t>(tokens) * kLatent, 6);
  std::vector<float> out(static_cast<std::size_t>(tokens) * kRows);
  std::size_t shard = 0;
  for (auto _ : state) {
    cpu::arith().dot(&weights[shard * kRows * kLatent], operand.data(), kLatent, kRows, tokens, out.data(),
                     kRows);
    benchmark::ClobberMemory();
    shard = (shard + 1) % kShards;
  }
  state.SetLabel(cpu::arith().name);
  state.SetBytesProcessed(state.iterations() * kRows * kLatent * 2);
}
BENCHMARK(dot)->Arg(1)->Arg(4)->Arg(16)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace moetail
