// SPDX-License-Identifier: Apache-2.0
// The contract's bit-exact quantities, written as the contract is: one loop a sentence.
#include "verify/exact.hpp"

#include <cmath>
#include <cstring>

#include "protocol/numerics.hpp"
#include "verify/oracle_kernel.hpp"
#include "verify/parallel.hpp"

namespace moetail::verify {
namespace {

void write_partial(const Problem& problem, int rank, int token, u16* out) {
  const RankInput& input = problem.ranks[rank];
  const long latent = problem.shape.latent;
  if (has_partial(input)) {
    std::memcpy(out, input.partial + token * latent, static_cast<std::size_t>(latent) * sizeof(u16));
    return;
  }
  const u16* rows[protocol::kMaxTopK];
  float weights[protocol::kMaxTopK];
  for (int k = 0; k < input.top_k; ++k) {
    rows[k] = route_row(input, problem.shape, token, k);
    weights[k] = route_weight(input, token, k);
  }
  finalize_row(rows, weights, input.top_k, problem.shape.latent, out);
}

}  // namespace

std::vector<u16> exact_partial(const Problem& problem, int rank) {
  check_problem(problem);
  const long latent = problem.shape.latent;
  std::vector<u16> partial(static_cast<std::size_t>(problem.batch * latent));
  for (int token = 0; token < problem.batch; ++token)
    write_partial(problem, rank, token, partial.data() + token * latent);
  return partial;
}

std::vector<u16> exact_partials(const Problem& problem, int threads) {
  check_problem(problem);
  const u64 batch = static_cast<u64>(problem.batch);
  const u64 latent = static_cast<u64>(problem.shape.latent);
  const u64 num_rows = batch * static_cast<u64>(problem.shape.ranks);
  std::vector<u16> partials(num_rows * latent);
  const auto work = [&](int, u64 begin, u64 end) {
    for (u64 row = begin; row < end; ++row)
      write_partial(problem, static_cast<int>(row / batch), static_cast<int>(row % batch),
                    &partials[row * latent]);
  };
  for_parts(num_rows, 1, work, threads_for(partials.size() * static_cast<u64>(problem.shape.top_k), threads));
  return partials;
}

std::vector<float> exact_x(const Problem& problem) {
  const std::vector<u16> partials = exact_partials(problem);
  const std::size_t size = partials.size() / static_cast<std::size_t>(problem.shape.ranks);
  std::vector<float> x(size);
  for (std::size_t i = 0; i < size; ++i) x[i] = protocol::f32_from_bf16(partials[i]);
  for (int r = 1; r < problem.shape.ranks; ++r) {
    const u16* partial = partials.data() + static_cast<std::size_t>(r) * size;
    for (std::size_t i = 0; i < size; ++i) x[i] += protocol::f32_from_bf16(partial[i]);
  }
  return x;
}

std::vector<u16> exact_gather(const Problem& problem) {
  const std::vector<float> x = exact_x(problem);
  std::vector<u16> gather(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) gather[i] = protocol::bf16_from_f32(x[i]);
  return gather;
}

std::vector<float> exact_shared(const Problem& problem) {
  check_problem(problem);
  const std::size_t size =
      static_cast<std::size_t>(problem.batch) * static_cast<std::size_t>(problem.shape.hidden);
  std::vector<float> sum(size);
  for (std::size_t i = 0; i < size; ++i) sum[i] = protocol::f32_from_bf16(problem.ranks[0].shared[i]);
  for (int r = 1; r < problem.shape.ranks; ++r) {
    for (std::size_t i = 0; i < size; ++i) sum[i] += protocol::f32_from_bf16(problem.ranks[r].shared[i]);
  }
  return sum;
}

float exact_square_sum(const float* x, int latent) {
  float sums[protocol::kSquareLanes] = {};
  for (int c = 0; c < latent; ++c) {
    float& sum = sums[c % protocol::kSquareLanes];
    sum = std::fma(x[c], x[c], sum);
  }
  for (int half = protocol::kSquareLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

float exact_norm(const float* x, const u16* gamma, const Shape& shape, u16* operand) {
  for (int c = 0; c < shape.latent; ++c)
    operand[c] = protocol::bf16_from_f32(protocol::f32_from_bf16(gamma[c]) * x[c]);
  const float mean = exact_square_sum(x, shape.latent) / static_cast<float>(shape.latent);
  return 1.0f / std::sqrt(mean + shape.eps);
}

}  // namespace moetail::verify
