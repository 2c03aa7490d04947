// SPDX-License-Identifier: Apache-2.0
// Making of input sets.
#include "cli/inputs.hpp"

#include <algorithm>
#include <utility>

#include "verify/exact.hpp"

namespace moetail::cli {
namespace {

using verify::RankInput;

// In a permuted call every eighth route is dropped or lives elsewhere, and a few rows belong to no route.
constexpr double kDroppedShare = 0.125;
constexpr int kSpareRows = 3;

std::size_t product(int a, int b) {
  return static_cast<std::size_t>(a) * static_cast<std::size_t>(b);
}

std::size_t set_bytes(const InputSpec& spec) {
  const std::size_t latent = static_cast<std::size_t>(spec.shape.latent);
  const std::size_t routes = product(spec.batch, spec.shape.top_k);
  const std::size_t hidden_elements = product(spec.batch, spec.shape.hidden);
  const std::size_t routed_elements = spec.form == Form::partial
                                          ? static_cast<std::size_t>(spec.batch) * latent
                                          : (routes + kSpareRows) * latent + 4 * routes;
  return 2 * static_cast<std::size_t>(spec.shape.ranks) * (hidden_elements + routed_elements) +
         (spec.residual ? 2 * hidden_elements : 0) + Inputs::published_bytes(spec, 1);
}

int sets_for(const InputSpec& spec, int num_layers) {
  if (spec.replay) return 1;
  const std::size_t fit = Inputs::kPoolBytes / set_bytes(spec) / 2 * 2;
  return static_cast<int>(std::clamp<std::size_t>(fit, 2, 2 * static_cast<std::size_t>(num_layers)));
}

RankInput captured_input(const io::RankInputs& from, const InputSpec& spec) {
  RankInput input;
  input.form = spec.form;
  input.top_k = spec.shape.top_k;
  input.rows = from.rows.data();
  input.num_rows = static_cast<int>(from.rows.size() / static_cast<std::size_t>(spec.shape.latent));
  input.map = from.map.empty() ? nullptr : from.map.data();
  input.weight_type = spec.weights;
  if (spec.weights == WeightType::fp32)
    input.weights = from.weights_f32.data();
  else
    input.weights = from.weights_bf16.data();
  input.partial = from.partial.empty() ? nullptr : from.partial.data();
  input.shared = from.shared.data();
  input.residual = from.residual.empty() ? nullptr : from.residual.data();
  return input;
}

}  // namespace

std::size_t Inputs::published_bytes(const InputSpec& spec, int num_sets) {
  if (spec.form != Form::published) return 0;
  return 2 * product(spec.shape.ranks, num_sets) * product(spec.batch, spec.shape.latent);
}

std::size_t Inputs::synthetic_bytes(const InputSpec& spec, int num_layers) {
  return set_bytes(spec) * static_cast<std::size_t>(sets_for(spec, num_layers));
}

Inputs Inputs::synthetic(const InputSpec& spec, int num_layers, Progress& progress) {
  Inputs inputs(spec);
  verify::InputOptions options;
  options.form = spec.form;
  options.weight_type = spec.weights;
  options.residual = spec.residual;
  options.dropped_share = kDroppedShare;
  options.spare_rows = kSpareRows;
  const int num_sets = sets_for(spec, num_layers);
  progress.begin(fmt::format("{} input sets, T={} B={}", num_sets, spec.shape.ranks, spec.batch),
                 static_cast<std::uint64_t>(num_sets));
  for (int set = 0; set < num_sets; ++set) {
    verify::CallInputs arrays = verify::make_inputs(spec.shape, spec.batch, spec.seed, set, options);
    std::vector<RankInput> ranks = arrays.ranks;
    inputs.add_set(std::move(arrays), std::move(ranks));
    progress.advance();
  }
  progress.end();
  return inputs;
}

Inputs Inputs::captured(const InputSpec& spec, const io::CapturedStep& step, std::span<const int> layers) {
  Inputs inputs(spec);
  inputs.captured_ = true;
  for (const int layer : layers) {
    std::vector<RankInput> ranks;
    ranks.reserve(static_cast<std::size_t>(spec.shape.ranks));
    for (int rank = 0; rank < spec.shape.ranks; ++rank)
      ranks.push_back(captured_input(step.inputs(layer, rank), spec));
    inputs.add_set({}, std::move(ranks));
  }
  return inputs;
}

void Inputs::add_set(verify::CallInputs arrays, std::vector<RankInput> ranks) {
  Set& set = sets_.emplace_back();
  set.arrays = std::move(arrays);
  set.ranks = std::move(ranks);
  if (spec_.form == Form::published) set.partials = partials_of(num_sets() - 1);
}

std::vector<Bf16> Inputs::partials_of(int set) const {
  const Set& one = sets_[static_cast<std::size_t>(set)];
  verify::Problem problem;
  problem.shape = spec_.shape;
  problem.batch = spec_.batch;
  problem.ranks = one.ranks;
  problem.w_up = problem.gamma = one.ranks.front().shared;  // must be there, and are not read for a partial
  return verify::exact_partials(problem);
}

int Inputs::set_of(int position, int step) const {
  return captured_ ? position : (2 * position + step % 2) % num_sets();
}

std::span<const Bf16> Inputs::published_partial(int set, int rank) const {
  const std::size_t size = product(spec_.batch, spec_.shape.latent);
  return std::span(sets_[static_cast<std::size_t>(set)].partials)
      .subspan(static_cast<std::size_t>(rank) * size, size);
}

Routed routed_of(const RankInput& input, const InputSpec& spec) {
  const std::size_t routes = product(spec.batch, spec.shape.top_k);
  const std::span rows(input.rows, product(input.num_rows, spec.shape.latent));
  const std::span map(input.map, input.map == nullptr ? 0 : routes);
  const std::span bf16(static_cast<const Bf16*>(input.weights), routes);
  const std::span fp32(static_cast<const float*>(input.weights), routes);
  const bool is_fp32 = input.weight_type == WeightType::fp32;
  switch (input.form) {
    case Form::expanded: return is_fp32 ? Routed::expanded(rows, fp32) : Routed::expanded(rows, bf16);
    case Form::permuted:
      return is_fp32 ? Routed::permuted(rows, map, fp32) : Routed::permuted(rows, map, bf16);
    case Form::partial: return Routed::finalized({input.partial, product(spec.batch, spec.shape.latent)});
    case Form::published: break;
  }
  return Routed::published();
}

}  // namespace moetail::cli
