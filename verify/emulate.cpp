// SPDX-License-Identifier: Apache-2.0
// Scalar emulation of the numeric contract.
#include "verify/emulate.hpp"

#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "protocol/numerics.hpp"
#include "verify/exact.hpp"
#include "verify/parallel.hpp"

namespace moetail::verify {
namespace {

using protocol::bf16_from_f32;
using protocol::f32_from_bf16;

std::vector<int> checked_order(const Problem& problem, std::span<const int> rank_order) {
  std::vector<int> order(static_cast<std::size_t>(problem.shape.ranks));
  std::iota(order.begin(), order.end(), 0);
  if (rank_order.empty()) return order;
  if (!std::is_permutation(order.begin(), order.end(), rank_order.begin(), rank_order.end()))
    base::bad_argument("rank_order", fmt::format("{}", fmt::join(rank_order, ", ")),
                       "a permutation of all ranks");
  return {rank_order.begin(), rank_order.end()};
}

}  // namespace

std::vector<u16> emulate(const Problem& problem, std::span<const int> rank_order) {
  check_problem(problem);
  const std::vector<int> order = checked_order(problem, rank_order);
  const std::vector<u16> partials = exact_partials(problem);
  const std::size_t latent = static_cast<std::size_t>(problem.shape.latent);
  const std::size_t hidden = static_cast<std::size_t>(problem.shape.hidden);
  const std::size_t batch = static_cast<std::size_t>(problem.batch);
  std::vector<u16> out(batch * hidden);
  std::vector<float> x(latent);
  std::vector<u16> operand(latent);
  for (std::size_t b = 0; b < batch; ++b) {
    for (std::size_t c = 0; c < latent; ++c) {
      const auto partial = [&](std::size_t r) {
        return f32_from_bf16(partials[(static_cast<std::size_t>(order[r]) * batch + b) * latent + c]);
      };
      x[c] = partial(0);
      for (std::size_t r = 1; r < order.size(); ++r) x[c] += partial(r);
      if (problem.twoshot) x[c] = f32_from_bf16(bf16_from_f32(x[c]));
    }
    const float scale = exact_norm(x.data(), problem.gamma, problem.shape, operand.data());
    for_parts(
        hidden, 8,
        [&](int, u64 begin, u64 end) {
          for (u64 j = begin; j < end; ++j) {
            const u16* row = problem.w_up + j * latent;
            // A product of two bf16 numbers is exact in fp32, so fused and separate additions give the same
            // bits.
            float dot = 0;
            for (std::size_t c = 0; c < latent; ++c) dot += f32_from_bf16(row[c]) * f32_from_bf16(operand[c]);
            const auto shared = [&](std::size_t r) {
              return f32_from_bf16(problem.ranks[static_cast<std::size_t>(order[r])].shared[b * hidden + j]);
            };
            float sum = shared(0);
            for (std::size_t r = 1; r < order.size(); ++r) sum += shared(r);
            float value = std::fma(dot, scale, sum);
            if (const u16* residual = problem.ranks[0].residual)
              value += f32_from_bf16(residual[b * hidden + j]);
            out[b * hidden + j] = bf16_from_f32(value);
          }
        },
        threads_for(hidden * latent));
  }
  return out;
}

}  // namespace moetail::verify
