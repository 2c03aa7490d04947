// SPDX-License-Identifier: Apache-2.0
// Reading a captured step: group the tensors by layer and rank, learn the sizes from the first, hold all
// others to them.
#include "io/captured_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "io/escaped.hpp"
#include "io/layer_list.hpp"
#include "io/step_groups.hpp"
#include "io/step_names.hpp"

namespace moetail::io {

inline constexpr std::size_t kRowAlignment = 16;

struct alignas(kRowAlignment) RowLine {
  std::byte bytes[kRowAlignment];
};

struct CapturedStep::Contents {
  explicit Contents(SafetensorsFile source) : file(std::move(source)) {}

  SafetensorsFile file;  // keeps the mapping
  StepSpec spec;
  std::map<LayerAndRank, RankInputs> inputs;
  std::vector<std::vector<RowLine>> copies;  // of tensors that the file does not have at a multiple of 16
};

namespace {

using Shape2 = std::array<std::uint64_t, 2>;

class StepReader {
 public:
  explicit StepReader(const SafetensorsFile& file) : file_(file), groups_(file) {}

  void read(StepSpec& spec, std::map<LayerAndRank, RankInputs>& inputs,
            std::vector<std::vector<RowLine>>& copies) {
    learn_spec(spec);
    for (const auto& [key, fields] : groups_.by_rank()) {
      check_form(spec, key, fields);
      inputs.emplace(key, read_inputs(spec, key, fields, copies));
    }
  }

 private:
  void learn_spec(StepSpec& spec) const {
    const auto& [key, first] = *groups_.by_rank().begin();
    for (const auto& [other, fields] : groups_.by_rank()) {
      if (spec.layers.empty() || spec.layers.back() != other.first) spec.layers.push_back(other.first);
    }
    spec.ranks = groups_.num_ranks();
    spec.form = form_of(key, first);
    spec.has_residual = first[StepField::residual] != nullptr;
    const Tensor& shared = required(key, first, StepField::shared);
    std::tie(spec.batch, spec.hidden) = two_extents(shared, "[B, H]");
    if (spec.form == RoutedForm::partial) {
      spec.latent = two_extents(required(key, first, StepField::partial), "[B, L]").second;
    } else {
      const Tensor& weights = required(key, first, StepField::weights);
      if (weights.dtype != Dtype::f32 && weights.dtype != Dtype::bf16) {
        fail("tensor {}: dtype = {}: accepted is F32 or BF16", escaped(weights.name),
             dtype_name(weights.dtype));
      }
      spec.weights = weights.dtype;
      spec.top_k = two_extents(weights, "[B, K]").second;
      // A rank may have no row at all, but its tensor still says how long a row is.
      const Tensor& rows = required(key, first, StepField::rows);
      if (rows.shape.size() != 2 || !is_extent(rows.shape[1])) reject_shape(rows, "[rows, L]");
      spec.latent = static_cast<int>(rows.shape[1]);
    }
    learn_metadata(spec);
  }

  void learn_metadata(StepSpec& spec) const {
    if (const auto top_k = integer_metadata(file_, kStepTopKKey)) {
      if (spec.form != RoutedForm::partial && *top_k != spec.top_k) {
        fail("__metadata__: {} = {}: accepted is {}, as the weights have that many columns", kStepTopKKey,
             *top_k, spec.top_k);
      }
      spec.top_k = *top_k;
    }
    if (const auto text = file_.metadata().find(kStepEpsKey); text != file_.metadata().end()) {
      const std::string& digits = text->second;
      double eps = 0;
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), eps);
      if (error != std::errc{} || end != digits.data() + digits.size() || !(eps >= 0 && eps <= 1)) {
        fail("__metadata__: {} = {}: accepted is a number from 0 to 1", kStepEpsKey, escaped(digits));
      }
      spec.eps = eps;
    }
  }

  RoutedForm form_of(const LayerAndRank& key, const StepTensors& fields) const {
    if (const Tensor* partial = fields[StepField::partial]) {
      for (const StepField other : {StepField::rows, StepField::map, StepField::weights}) {
        if (fields[other] != nullptr) {
          fail("tensors {} and {}: accepted is a partial, or rows with their weights and map, not both",
               escaped(partial->name), escaped(fields[other]->name));
        }
      }
      return RoutedForm::partial;
    }
    if (fields[StepField::rows] == nullptr) {
      fail("tensor {} is missing: accepted is that or {}", step_name(key.first, key.second, StepField::rows),
           step_name(key.first, key.second, StepField::partial));
    }
    return fields[StepField::map] != nullptr ? RoutedForm::permuted : RoutedForm::expanded;
  }

  void check_form(const StepSpec& spec, const LayerAndRank& key, const StepTensors& fields) const {
    constexpr std::array<std::string_view, 3> kForms{"rows without a map", "rows with a map", "a partial"};
    const auto& [layer, rank] = key;
    if (const RoutedForm form = form_of(key, fields); form != spec.form) {
      fail("layer {} rank {} has {}: accepted is {}, as layer {} rank 0 has", layer, rank,
           kForms[static_cast<std::size_t>(form)], kForms[static_cast<std::size_t>(spec.form)],
           spec.layers.front());
    }
    const bool has_residual = fields[StepField::residual] != nullptr;
    if (has_residual != spec.has_residual) {
      fail("layer {} rank {} has {} residual: accepted is a residual in every layer and rank, or none", layer,
           rank, has_residual ? "a" : "no");
    }
  }

  RankInputs read_inputs(const StepSpec& spec, const LayerAndRank& key, const StepTensors& fields,
                         std::vector<std::vector<RowLine>>& copies) const {
    const auto batch = static_cast<std::uint64_t>(spec.batch);
    const auto top_k = static_cast<std::uint64_t>(spec.top_k);
    const auto latent = static_cast<std::uint64_t>(spec.latent);
    const auto hidden = static_cast<std::uint64_t>(spec.hidden);

    RankInputs inputs;
    inputs.shared = rows_of(required(key, fields, StepField::shared), {batch, hidden}, "[B, H]", copies);
    if (spec.has_residual) {
      inputs.residual =
          rows_of(required(key, fields, StepField::residual), {batch, hidden}, "[B, H]", copies);
    }
    if (spec.form == RoutedForm::partial) {
      inputs.partial = rows_of(required(key, fields, StepField::partial), {batch, latent}, "[B, L]", copies);
      return inputs;
    }

    const Tensor& weights = required(key, fields, StepField::weights);
    if (spec.weights == Dtype::f32) {
      inputs.weights_f32 = file_.elements<float>(weights, Dtype::f32);
    } else {
      inputs.weights_bf16 = file_.elements<std::uint16_t>(weights, Dtype::bf16);
    }
    check_shape(weights, {batch, top_k}, "[B, K]");

    const Tensor& rows = required(key, fields, StepField::rows);
    if (spec.form == RoutedForm::expanded) {
      inputs.rows = rows_of(rows, {batch * top_k, latent}, "[B*K, L]", copies);
      return inputs;
    }
    const std::uint64_t num_rows = rows.shape.size() == 2 ? rows.shape[0] : 0;
    inputs.rows = rows_of(rows, {num_rows, latent}, "[P, L]", copies);
    const Tensor& map = required(key, fields, StepField::map);
    inputs.map = file_.elements<std::int32_t>(map, Dtype::i32);
    check_shape(map, {batch, top_k}, "[B, K]");
    if (const auto bad = first_bad_map_entry(inputs.map, top_k, num_rows)) {
      fail(
          "tensor {}: token {}, k {}: {}: accepted is a row below P = {}, or a negative number for a dropped "
          "route",
          escaped(map.name), bad->token, bad->k, bad->value, num_rows);
    }
    return inputs;
  }

  /// The bf16 tensor, at a multiple of 16 bytes: in the file, or copied where the file has it elsewhere.
  std::span<const std::uint16_t> rows_of(const Tensor& tensor, const Shape2& shape, const char* formula,
                                         std::vector<std::vector<RowLine>>& copies) const {
    const auto values = file_.elements<std::uint16_t>(tensor, Dtype::bf16);
    check_shape(tensor, shape, formula);
    if (values.empty() || reinterpret_cast<std::uintptr_t>(values.data()) % kRowAlignment == 0) return values;
    auto& copy = copies.emplace_back((values.size_bytes() + kRowAlignment - 1) / kRowAlignment);
    std::memcpy(copy.data(), values.data(), values.size_bytes());
    return {reinterpret_cast<const std::uint16_t*>(copy.data()), values.size()};
  }

  void check_shape(const Tensor& tensor, const Shape2& shape, const char* formula) const {
    if (!std::equal(tensor.shape.begin(), tensor.shape.end(), shape.begin(), shape.end())) {
      fail("tensor {}: shape = {}: accepted is {} = {}, as in the first layer", escaped(tensor.name),
           shape_text(tensor.shape), formula, shape_text(shape));
    }
  }

  static bool is_extent(std::uint64_t extent) {
    return extent >= 1 && extent <= std::numeric_limits<int>::max();
  }

  [[noreturn]] void reject_shape(const Tensor& tensor, const char* formula) const {
    fail("tensor {}: shape = {}: accepted is {}, sizes from 1 to {}", escaped(tensor.name),
         shape_text(tensor.shape), formula, std::numeric_limits<int>::max());
  }

  std::pair<int, int> two_extents(const Tensor& tensor, const char* formula) const {
    if (tensor.shape.size() != 2 || !is_extent(tensor.shape[0]) || !is_extent(tensor.shape[1]))
      reject_shape(tensor, formula);
    return {static_cast<int>(tensor.shape[0]), static_cast<int>(tensor.shape[1])};
  }

  const Tensor& required(const LayerAndRank& key, const StepTensors& fields, StepField field) const {
    if (fields[field] == nullptr) fail("tensor {} is missing", step_name(key.first, key.second, field));
    return *fields[field];
  }

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    base::fail(Code::file, "{}: {}", file_.name(), fmt::format(format, std::forward<Args>(args)...));
  }

  const SafetensorsFile& file_;
  StepGroups groups_;
};

}  // namespace

CapturedStep::CapturedStep(const SafetensorsFile& file) {
  auto contents = std::make_shared<Contents>(file);
  StepReader(contents->file).read(contents->spec, contents->inputs, contents->copies);
  contents_ = std::move(contents);
}

CapturedStep CapturedStep::open(const std::filesystem::path& path) {
  return CapturedStep(SafetensorsFile::open(path));
}

const StepSpec& CapturedStep::spec() const noexcept {
  return contents_->spec;
}

const RankInputs& CapturedStep::inputs(int layer, int rank) const {
  const auto found = contents_->inputs.find({layer, rank});
  if (found != contents_->inputs.end()) return found->second;
  const StepSpec& spec = contents_->spec;
  if (rank < 0 || rank >= spec.ranks)
    base::bad_argument("rank", rank, fmt::format("0 to {}", spec.ranks - 1));
  base::bad_argument("layer", layer, "one of " + escaped(layer_list_text(spec.layers)));
}

}  // namespace moetail::io
