// SPDX-License-Identifier: Apache-2.0
// Writing a captured step; the rules of the reader are applied to the caller's spans first.
#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "io/captured_step.hpp"
#include "io/layer_list.hpp"
#include "io/safetensors_writer.hpp"
#include "io/step_names.hpp"

namespace moetail::io {
namespace {

void check_at_least(const char* name, int value, int low) {
  if (value < low) base::bad_argument(name, value, fmt::format("at least {}", low));
}

void check_spec(const StepSpec& spec) {
  if (spec.layers.empty()) base::bad_argument("layers", "none", "at least one");
  for (const int layer : spec.layers) {
    if (layer < 0 || layer > kMaxIndex) base::bad_argument("layer", layer, fmt::format("0 to {}", kMaxIndex));
  }
  if (std::set<int>(spec.layers.begin(), spec.layers.end()).size() != spec.layers.size()) {
    base::bad_argument("layers", layer_list_text(spec.layers), "each layer once");
  }
  check_at_least("ranks", spec.ranks, 1);
  if (spec.ranks > kMaxIndex) base::bad_argument("ranks", spec.ranks, fmt::format("at most {}", kMaxIndex));
  check_at_least("batch", spec.batch, 1);
  check_at_least("top_k", spec.top_k, spec.form == RoutedForm::partial ? 0 : 1);
  if (spec.top_k > kMaxIndex) base::bad_argument("top_k", spec.top_k, fmt::format("at most {}", kMaxIndex));
  check_at_least("latent", spec.latent, 1);
  check_at_least("hidden", spec.hidden, 1);
  if (spec.form != RoutedForm::partial && spec.weights != Dtype::f32 && spec.weights != Dtype::bf16) {
    base::bad_argument("weights", dtype_name(spec.weights), "F32 or BF16");
  }
  if (spec.eps && !(*spec.eps >= 0 && *spec.eps <= 1)) base::bad_argument("eps", *spec.eps, "0 to 1");
}

/// A tensor of the file and the caller's bytes for it.
struct Piece {
  TensorSpec spec;
  std::span<const std::byte> bytes;
};

/// The pieces of one layer and rank, checked against the spec.
class Collector {
 public:
  Collector(const StepSpec& spec, int layer, int rank, std::vector<Piece>& pieces)
      : spec_(spec), layer_(layer), rank_(rank), pieces_(pieces) {}

  void collect(const RankInputs& inputs) {
    const auto batch = static_cast<std::uint64_t>(spec_.batch);
    const auto top_k = static_cast<std::uint64_t>(spec_.top_k);
    const auto latent = static_cast<std::uint64_t>(spec_.latent);
    const auto hidden = static_cast<std::uint64_t>(spec_.hidden);
    const bool has_rows = spec_.form != RoutedForm::partial;
    const bool has_map = spec_.form == RoutedForm::permuted;
    // The caller chooses P; a span that is no multiple of L long then fails the check of its length.
    const std::uint64_t num_rows = has_map ? inputs.rows.size() / latent : batch * top_k;

    add(StepField::rows, has_rows, inputs.rows, Dtype::bf16, {num_rows, latent}, has_map ? "P*L" : "B*K*L");
    add(StepField::map, has_map, inputs.map, Dtype::i32, {batch, top_k}, "B*K");
    add(StepField::weights, has_rows && spec_.weights == Dtype::f32, inputs.weights_f32, Dtype::f32,
        {batch, top_k}, "B*K");
    add(StepField::weights, has_rows && spec_.weights == Dtype::bf16, inputs.weights_bf16, Dtype::bf16,
        {batch, top_k}, "B*K");
    add(StepField::partial, !has_rows, inputs.partial, Dtype::bf16, {batch, latent}, "B*L");
    add(StepField::shared, true, inputs.shared, Dtype::bf16, {batch, hidden}, "B*H");
    add(StepField::residual, spec_.has_residual, inputs.residual, Dtype::bf16, {batch, hidden}, "B*H");
    if (!has_map) return;
    if (const auto bad = first_bad_map_entry(inputs.map, top_k, num_rows)) {
      base::fail(
          Code::invalid_argument,
          "{}: token {}, k {}: {}: accepted is a row below P = {}, or a negative number for a dropped route",
          step_name(layer_, rank_, StepField::map), bad->token, bad->k, bad->value, num_rows);
    }
  }

 private:
  template <typename T>
  void add(StepField field, bool is_wanted, std::span<const T> values, Dtype dtype,
           std::vector<std::uint64_t> shape, const char* formula) {
    const std::string name = step_name(layer_, rank_, field);
    if (!is_wanted) {
      // Both kinds of weights share a name; the one that is not the spec's must be empty.
      if (!values.empty()) {
        base::bad_argument(fmt::format("{} elements of {}", name, dtype_name(dtype)), values.size(),
                           "none, by the spec");
      }
      return;
    }
    const TensorSize size = tensor_size(dtype, shape);
    if (size.problem != nullptr || values.size() != size.elements) {
      base::bad_argument(fmt::format("{} elements of {}", name, dtype_name(dtype)), values.size(),
                         fmt::format("{} = {}", formula, size.elements));
    }
    pieces_.push_back({{name, dtype, std::move(shape)}, std::as_bytes(values)});
  }

  const StepSpec& spec_;
  int layer_;
  int rank_;
  std::vector<Piece>& pieces_;
};

std::map<std::string, std::string> metadata_of(const StepSpec& spec) {
  std::map<std::string, std::string> metadata{{kStepVersionKey, kStepVersion},
                                              {kStepRanksKey, fmt::format("{}", spec.ranks)}};
  if (spec.top_k > 0) metadata.emplace(kStepTopKKey, fmt::format("{}", spec.top_k));
  if (spec.eps) metadata.emplace(kStepEpsKey, fmt::format("{}", *spec.eps));
  return metadata;
}

}  // namespace

void write_captured_step(const std::filesystem::path& path, const StepSpec& spec, const StepInputs& inputs) {
  check_spec(spec);
  std::vector<Piece> pieces;
  for (const int layer : spec.layers) {
    for (int rank = 0; rank < spec.ranks; ++rank) {
      Collector(spec, layer, rank, pieces).collect(inputs(layer, rank));
    }
  }
  std::vector<TensorSpec> specs;
  specs.reserve(pieces.size());
  for (const Piece& piece : pieces) specs.push_back(piece.spec);
  SafetensorsWriter writer(path, specs, metadata_of(spec));
  for (const Piece& piece : pieces) writer.append(piece.spec.name, piece.bytes);
  writer.finish();
}

}  // namespace moetail::io
