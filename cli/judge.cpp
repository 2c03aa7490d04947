// SPDX-License-Identifier: Apache-2.0
// The checks of a step.
#include "cli/judge.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "verify/hash.hpp"
#include "verify/oracle.hpp"

namespace moetail::cli {
namespace {

std::uint64_t hash_of(std::uint64_t hash, std::span<const Bf16> bits) {
  for (const Bf16 word : bits) hash = verify::mix64(hash + word + 1);
  return hash;
}

std::string place_text(int step, int layer) {
  return fmt::format("step {}, layer {}", step, layer);
}

}  // namespace

verify::RankInput from_token(const verify::RankInput& input, const Shape& shape, int first, int num_tokens) {
  const std::ptrdiff_t latent_offset = static_cast<std::ptrdiff_t>(first) * shape.latent;
  const std::ptrdiff_t hidden_offset = static_cast<std::ptrdiff_t>(first) * shape.hidden;
  const std::ptrdiff_t route_offset = static_cast<std::ptrdiff_t>(first) * input.top_k;
  verify::RankInput part = input;
  if (input.map != nullptr) {
    part.map += route_offset;
  } else if (input.rows != nullptr) {
    part.rows += latent_offset * input.top_k;
    part.num_rows = num_tokens * input.top_k;
  }
  if (input.weights != nullptr) {
    const std::ptrdiff_t size = input.weight_type == WeightType::fp32 ? sizeof(float) : sizeof(Bf16);
    part.weights = static_cast<const std::byte*>(input.weights) + route_offset * size;
  }
  if (input.partial != nullptr) part.partial += latent_offset;
  part.shared += hidden_offset;
  if (input.residual != nullptr) part.residual += hidden_offset;
  return part;
}

void note_report(Checks& checks, const verify::RowReport& report, int step, int layer, int first_token) {
  checks.rows_checked += static_cast<std::uint64_t>(report.rows);
  if (report.ratio > checks.worst_ratio) {
    checks.worst_ratio = report.ratio;
    checks.worst_error = report.error;
    checks.worst_bound = report.bound;
    checks.worst_step = step;
    checks.worst_layer = layer;
    checks.worst_token = first_token + report.worst_token;
  }
  if (report.passes()) return;
  checks.within_bound = false;
  checks.note_mismatch(
      fmt::format("{}, tokens from {}: {}", place_text(step, layer), first_token, report.text()));
}

Judge::Judge(std::span<const LayerWeights> weights, const Inputs& inputs, Mode mode, int steps)
    : weights_(weights), inputs_(inputs), twoshot_(mode == Mode::twoshot), steps_(steps) {
  checks_.rows_total =
      static_cast<std::uint64_t>(steps) * weights.size() * static_cast<std::uint64_t>(inputs.spec().batch);
}

void Judge::check_step(const StepOutput& output, int step) {
  const int num_layers = static_cast<int>(weights_.size());
  const int batch = inputs_.spec().batch;
  const bool whole = step == 0 || step == steps_ - 1;
  for (int position = 0; position < num_layers; ++position) {
    const std::span<const Bf16> rows = output.output(position, 0);
    compare_ranks(output, step, position);
    compare_repeat(rows, step, position);
    if (whole) compare_with_oracle(rows, step, position, 0, batch);
    if (step >= steps_ - 2) checks_.output_hash = hash_of(checks_.output_hash, rows);
  }
  if (whole) return;
  const std::uint64_t num_rows = static_cast<std::uint64_t>(num_layers) * static_cast<std::uint64_t>(batch);
  if (num_rows == 0) return;
  // Neighbours of a random start, spread over the step: none is taken twice.
  const std::uint64_t start =
      verify::mix64(inputs_.spec().seed + static_cast<std::uint64_t>(step)) % num_rows;
  const std::uint64_t count = std::min<std::uint64_t>(kSampledRows, num_rows);
  for (std::uint64_t i = 0; i < count; ++i) {
    const int row = static_cast<int>((start + i * num_rows / count) % num_rows);
    const int position = row / batch;
    compare_with_oracle(output.output(position, 0), step, position, row % batch, 1);
  }
}

std::string Judge::place(int step, int position) const {
  return place_text(step, weights_[static_cast<std::size_t>(position)].layer);
}

void Judge::compare_ranks(const StepOutput& output, int step, int position) {
  const std::span<const Bf16> first = output.output(position, 0);
  std::vector<std::span<const Bf16>> ranks{first};
  bool equal = true;
  const int num_ranks = inputs_.spec().replay ? 1 : inputs_.spec().shape.ranks;
  for (int rank = 1; rank < num_ranks; ++rank) {
    ranks.push_back(output.output(position, rank));
    equal = equal && std::ranges::equal(first, ranks.back());
  }
  if (equal) return;
  checks_.ranks_equal = false;
  checks_.note_mismatch(fmt::format("{}: ranks differ from rank 0: {}", place(step, position),
                                    verify::compare_ranks(ranks, inputs_.spec().shape.hidden).text()));
}

void Judge::compare_repeat(std::span<const Bf16> rows, int step, int position) {
  std::vector<Bf16>& all = earlier_[static_cast<std::size_t>(step % 2)];
  all.resize(weights_.size() * rows.size());
  const std::span<Bf16> earlier =
      std::span(all).subspan(static_cast<std::size_t>(position) * rows.size(), rows.size());
  if (step >= 2)
    compare_with_earlier(rows, earlier, step, position,
                         fmt::format("from step {} with the same inputs", step - 2));
  std::ranges::copy(rows, earlier.begin());
}

void Judge::compare_with_earlier(std::span<const Bf16> rows, std::span<const Bf16> earlier, int step,
                                 int position, const std::string& what) {
  if (std::ranges::equal(rows, earlier)) return;
  checks_.repeat_equal = false;
  checks_.note_mismatch(fmt::format("{}: differs {}: {}", place(step, position), what,
                                    verify::compare_bits(earlier, rows, inputs_.spec().shape.hidden).text()));
}

void Judge::note_failure(std::string text) {
  checks_.within_bound = false;
  checks_.note_mismatch(std::move(text));
}

void Judge::compare_with_oracle(std::span<const Bf16> rows, int step, int position, int first_token,
                                int num_tokens) {
  const Shape& shape = inputs_.spec().shape;
  const LayerWeights& layer = weights_[static_cast<std::size_t>(position)];
  std::vector<verify::RankInput> ranks;
  for (const verify::RankInput& input : inputs_.ranks(inputs_.set_of(position, step)))
    ranks.push_back(from_token(input, shape, first_token, num_tokens));
  const verify::Problem problem{shape, num_tokens, twoshot_, ranks, layer.up_proj.data(), layer.norm.data()};
  const std::size_t hidden = static_cast<std::size_t>(shape.hidden);
  // In replay rank 0 computes its own columns only.
  std::vector<protocol::i32> columns(inputs_.spec().replay ? static_cast<std::size_t>(shape.shard()) : 0);
  std::iota(columns.begin(), columns.end(), 0);
  const verify::RowReport report = verify::check_rows(
      verify::expect(problem, columns), rows.subspan(static_cast<std::size_t>(first_token) * hidden,
                                                     static_cast<std::size_t>(num_tokens) * hidden));
  note_report(checks_, report, step, layer.layer, first_token);
}

}  // namespace moetail::cli
