// SPDX-License-Identifier: Apache-2.0
// The float64 oracle: latent rows, norm, up projection, sums; then the rows that fp32 cannot carry, by plain
// evaluation.
#include "verify/oracle.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.hpp"
#include "protocol/numerics.hpp"
#include "verify/exact.hpp"
#include "verify/oracle_kernel.hpp"
#include "verify/parallel.hpp"

namespace moetail::verify {
namespace {

using protocol::bf16_from_f32;
using protocol::f32_from_bf16;

// Rows of W that pass all tokens together: 230 KB at L = 3584, which leaves room in a 1 MB cache for four
// tokens.
constexpr u64 kRowBlock = 32;

/// One token on its way to the up projection.
struct Latent {
  std::vector<double> n;        ///< [L]
  std::vector<double> unsure;   ///< [L], u_i of RowFacts
  std::vector<double> error;    ///< [L], what rounding the operand adds to n
  std::vector<double> operand;  ///< [L], bf16(gamma * x) of plain fp32 evaluation
  float scale = 0;              ///< of plain evaluation
  bool plain = false;
};

Latent normalize(const Problem& problem, const std::vector<u16>& partials, RankSum rank_sum, int token) {
  const Shape& shape = problem.shape;
  const std::size_t latent = static_cast<std::size_t>(shape.latent);
  const std::size_t rank_pitch = static_cast<std::size_t>(problem.batch) * latent;
  const u16* first = partials.data() + static_cast<std::size_t>(token) * latent;
  std::vector<float> x32(latent);
  std::vector<double> x(latent), reach(latent);
  for (std::size_t c = 0; c < latent; ++c) x32[c] = f32_from_bf16(first[c]);
  for (std::size_t c = 0; c < latent; ++c) reach[c] = std::abs(x[c] = static_cast<double>(x32[c]));
  for (int r = 1; r < shape.ranks; ++r) {
    const u16* partial = first + static_cast<std::size_t>(r) * rank_pitch;
    for (std::size_t c = 0; c < latent; ++c) {
      const float value = f32_from_bf16(partial[c]);
      x32[c] += value;
      x[c] += static_cast<double>(value);
      reach[c] += std::abs(static_cast<double>(value));
    }
  }
  if (problem.twoshot) {
    for (float& value : x32) value = f32_from_bf16(bf16_from_f32(value));
  }
  const bool exact = problem.twoshot || rank_sum == RankSum::rank_order;
  if (exact) std::copy(x32.begin(), x32.end(), x.begin());

  double square = 0;
  for (double value : x) square += value * value;
  const double mean = square / static_cast<double>(latent);
  const double scale = 1.0 / std::sqrt(mean + static_cast<double>(shape.eps));
  Latent row{.n = std::vector<double>(latent),
             .unsure = std::vector<double>(latent),
             .error = std::vector<double>(latent),
             .operand = std::vector<double>(latent)};
  std::vector<u16> operand(latent);
  row.scale = exact_norm(x32.data(), problem.gamma, shape, operand.data());
  bool finite = std::isfinite(row.scale);
  for (std::size_t c = 0; c < latent; ++c) {
    row.operand[c] = static_cast<double>(f32_from_bf16(operand[c]));
    finite = finite && std::isfinite(row.operand[c]);
    const double gamma = static_cast<double>(f32_from_bf16(problem.gamma[c]));
    const double product = gamma * x[c];
    row.n[c] = product * scale;
    row.error[c] = (nearest_bf16(static_cast<double>(static_cast<float>(gamma) * x32[c])) - product) * scale;
    const double sum_error = exact ? 0.0 : (shape.ranks - 1) * kFp32Rounding * std::abs(gamma) * reach[c];
    row.unsure[c] = (half_ulp_bf16(product) + kFp32Rounding * std::abs(product) + sum_error) * scale;
  }
  // Squares of fp32 stay in range, with room for elements far above the rms, between these; zero is in order
  // too.
  row.plain = !finite || !(mean <= 0x1p90 && (mean >= 0x1p-90 || (mean == 0 && shape.eps > 0)));
  return row;
}

/// What one thread adds to the norms of all columns of W.
using ColumnSquares = std::vector<double>;

class Oracle {
 public:
  Oracle(const Problem& problem, std::span<const i32> columns, RankSum rank_sum, int threads)
      : problem_(problem),
        latent_(static_cast<std::size_t>(problem.shape.latent)),
        rank_sum_(rank_sum),
        requested_threads_(threads) {
    check_problem(problem);
    const u64 columns_judged = columns.empty() ? static_cast<u64>(problem.shape.hidden) : columns.size();
    threads_ = threads_for(columns_judged * latent_ * static_cast<u64>(problem.batch), threads);
    result_.shape = problem.shape;
    result_.batch = problem.batch;
    result_.twoshot = problem.twoshot;
    result_.has_residual = problem.ranks[0].residual != nullptr;
    result_.columns.assign(columns.begin(), columns.end());
    if (columns.empty()) {
      result_.columns.resize(static_cast<std::size_t>(problem.shape.hidden));
      std::iota(result_.columns.begin(), result_.columns.end(), 0);
    }
    for (i32 column : result_.columns) {
      if (column < 0 || column >= problem.shape.hidden)
        base::bad_argument("columns[]", column, fmt::format("0 to {}", problem.shape.hidden - 1));
      rows_.push_back(problem.w_up + static_cast<std::size_t>(column) * latent_);
    }
  }

  Expectation run() {
    const std::size_t batch = static_cast<std::size_t>(problem_.batch);
    const std::vector<u16> partials = exact_partials(problem_, requested_threads_);
    tokens_.resize(batch);
    for_parts(
        batch, 1,
        [&](int, u64 begin, u64 end) {
          for (u64 b = begin; b < end; ++b)
            tokens_[b] = normalize(problem_, partials, rank_sum_, static_cast<int>(b));
        },
        threads_);
    std::vector<double> operand;
    for (const Latent& token : tokens_) operand.insert(operand.end(), token.n.begin(), token.n.end());
    for (const Latent& token : tokens_) operand.insert(operand.end(), token.error.begin(), token.error.end());
    std::vector<double> error_dot;
    const std::vector<double> column_norms = project(operand, result_.without_residual);
    error_dot.assign(result_.without_residual.begin() + static_cast<std::ptrdiff_t>(batch * width()),
                     result_.without_residual.end());
    result_.without_residual.resize(batch * width());
    result_.out.resize(result_.without_residual.size());
    result_.rows.resize(batch);
    std::vector<char> finite(batch);
    for_parts(
        batch, 1,
        [&](int, u64 begin, u64 end) {
          for (u64 b = begin; b < end; ++b) {
            gather_facts(b, column_norms, &error_dot[b * width()]);
            finite[b] = add_shared(b);
          }
        },
        threads_);
    std::vector<std::size_t> doubtful;
    for (std::size_t b = 0; b < batch; ++b) {
      if (!finite[b]) doubtful.push_back(b);
    }
    if (!doubtful.empty()) evaluate_plainly(doubtful);
    return std::move(result_);
  }

 private:
  std::size_t width() const { return rows_.size(); }
  std::size_t hidden() const { return static_cast<std::size_t>(problem_.shape.hidden); }

  /// dot [num_tokens, |J|] of `operand` [num_tokens, L]; returns |W_Ji| for every latent column i, of finite
  /// weights.
  std::vector<double> project(const std::vector<double>& operand, std::vector<double>& dot) const {
    const int num_tokens = static_cast<int>(operand.size() / latent_);
    dot.resize(static_cast<std::size_t>(num_tokens) * width());
    std::vector<ColumnSquares> squares(static_cast<std::size_t>(threads_), ColumnSquares(latent_));
    const auto work = [&](int part, u64 begin, u64 end) {
      for (u64 j = begin; j < end; j += kRowBlock) {
        const int count = static_cast<int>(std::min<u64>(kRowBlock, end - j));
        dot_rows(&rows_[j], count, problem_.shape.latent, operand.data(), num_tokens, &dot[j],
                 static_cast<long>(width()));
        add_column_squares(&rows_[j], count, problem_.shape.latent,
                           squares[static_cast<std::size_t>(part)].data());
      }
    };
    for_parts(width(), 8, work, threads_);
    std::vector<double> norms(latent_);
    for (std::size_t c = 0; c < latent_; ++c) {
      for (const ColumnSquares& part : squares) norms[c] += part[c];
      norms[c] = std::sqrt(norms[c]);
    }
    return norms;
  }

  void gather_facts(std::size_t b, const std::vector<double>& column_norms, const double* error_dot) {
    RowFacts& facts = result_.rows[b];
    facts.plain = tokens_[b].plain;
    if (facts.plain) return;
    for (std::size_t c = 0; c < latent_; ++c) {
      const double reach = tokens_[b].unsure[c] * column_norms[c];
      const double walk = tokens_[b].n[c] * column_norms[c];
      facts.operand_square += reach * reach;
      facts.operand_fourth += reach * reach * reach * reach;
      facts.operand_reach += reach;
      facts.walk_square += walk * walk;
    }
    double square = 0;
    for (std::size_t j = 0; j < width(); ++j) {
      if (std::isfinite(error_dot[j])) square += error_dot[j] * error_dot[j];
    }
    facts.operand_actual = std::sqrt(square);
  }

  double residual(std::size_t b, std::size_t j) const {
    if (!result_.has_residual) return 0.0;
    const std::size_t column = static_cast<std::size_t>(result_.columns[j]);
    return static_cast<double>(f32_from_bf16(problem_.ranks[0].residual[b * hidden() + column]));
  }

  float shared32(std::size_t b, std::size_t j) const {
    const std::size_t index = b * hidden() + static_cast<std::size_t>(result_.columns[j]);
    float sum = f32_from_bf16(problem_.ranks[0].shared[index]);
    for (int r = 1; r < problem_.shape.ranks; ++r) sum += f32_from_bf16(problem_.ranks[r].shared[index]);
    return sum;
  }

  /// Adds shared sum and residual to row b; false where a value on the way is not finite in fp32.
  bool add_shared(std::size_t b) {
    bool finite = !tokens_[b].plain;
    for (std::size_t j = 0; j < width(); ++j) {
      const std::size_t index = b * hidden() + static_cast<std::size_t>(result_.columns[j]);
      double sum = 0, reach = 0;
      for (const RankInput& input : problem_.ranks) {
        const double value = static_cast<double>(f32_from_bf16(input.shared[index]));
        sum += value;
        reach += std::abs(value);
      }
      const float in_order = shared32(b, j);
      if (rank_sum_ == RankSum::rank_order) sum = static_cast<double>(in_order);
      if (std::isfinite(reach)) result_.rows[b].shared_square += reach * reach;
      double& without = result_.without_residual[b * width() + j];
      double& out = result_.out[b * width() + j];
      without += sum;
      out = result_.has_residual ? without + residual(b, j) : without;
      finite = finite && std::isfinite(in_order) && std::isfinite(static_cast<float>(out));
    }
    return finite;
  }

  /// Whether some order of additions takes the dot product of row b and column j out of fp32's range. Not where an operand has no range:
  /// then every order does.
  bool may_overflow(std::size_t b, std::size_t j) const {
    double reach = 0;
    for (std::size_t c = 0; c < latent_; ++c)
      reach += std::abs(static_cast<double>(f32_from_bf16(rows_[j][c])) * tokens_[b].operand[c]);
    return std::isfinite(reach) && reach >= static_cast<double>(std::numeric_limits<float>::max());
  }

  /// Rows `tokens` once more, in fp32 range: whole where the latent left it, else the elements that are not
  /// finite.
  void evaluate_plainly(const std::vector<std::size_t>& tokens) {
    std::vector<double> operand, dot;
    for (std::size_t b : tokens)
      operand.insert(operand.end(), tokens_[b].operand.begin(), tokens_[b].operand.end());
    project(operand, dot);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      const std::size_t b = tokens[t];
      for (std::size_t j = 0; j < width(); ++j) {
        const float sum =
            std::fma(static_cast<float>(dot[t * width() + j]), tokens_[b].scale, shared32(b, j));
        const float plain = result_.has_residual ? sum + static_cast<float>(residual(b, j)) : sum;
        double& out = result_.out[b * width() + j];
        if (!tokens_[b].plain && std::isfinite(plain) && std::isfinite(out)) continue;
        if (may_overflow(b, j)) {
          result_.order_decides.resize(result_.out.size());
          result_.order_decides[b * width() + j] = true;
        }
        out = static_cast<double>(plain);
        result_.without_residual[b * width() + j] = static_cast<double>(sum);
      }
    }
  }

  const Problem& problem_;
  std::size_t latent_;
  RankSum rank_sum_;
  int requested_threads_;
  int threads_ = 1;
  std::vector<const u16*> rows_;
  std::vector<Latent> tokens_;
  Expectation result_;
};

}  // namespace

double nearest_bf16(double value) {
  const double half = half_ulp_bf16(value);
  return half == 0.0 ? value : std::nearbyint(value / (2 * half)) * (2 * half);
}

double half_ulp_bf16(double value) {
  if (value == 0.0 || !std::isfinite(value)) return 0.0;
  // 8 significant bits: a number of [2^e, 2^(e+1)) has neighbours 2^(e-7) away.
  return std::ldexp(1.0, std::max(std::ilogb(value) - 8, -134));
}

Expectation expect(const Problem& problem, std::span<const i32> columns, RankSum rank_sum, int threads) {
  return Oracle(problem, columns, rank_sum, threads).run();
}

}  // namespace moetail::verify
