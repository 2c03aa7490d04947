// SPDX-License-Identifier: Apache-2.0
// Inputs of a decode step as an engine captured them: one safetensors file with every layer's and every
// rank's tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "io/dtype.hpp"
#include "io/safetensors.hpp"

namespace moetail::io {

/// How the routed rows of a captured step are given.
enum class RoutedForm {
  expanded,  ///< rows [B*K, L] and weights [B, K]: row b*K + k is route k of token b
  permuted,  ///< rows [P, L], map [B, K] and weights [B, K]; P may differ by rank and be 0
  partial,   ///< an already finalized partial [B, L]
};

/// What all layers and ranks of a step agree on.
struct StepSpec {
  RoutedForm form = RoutedForm::expanded;
  Dtype weights = Dtype::f32;  ///< of the routing weights: f32 or bf16; without meaning for partial
  std::vector<int> layers;     ///< layer indices
  int ranks = 0;               ///< T
  int batch = 0;               ///< B, tokens
  int top_k = 0;               ///< K, routes of a token; for partial 0 where unknown
  int latent = 0;              ///< L, columns of a routed row
  int hidden = 0;              ///< H, columns of an output row
  bool has_residual = false;
  std::optional<double> eps = {};  ///< the norm's eps, where the capture says it
};

/// One rank's inputs of one layer; spans that its form does not have are empty. bf16 values are bits.
struct RankInputs {
  std::span<const std::uint16_t> rows;          ///< [B*K, L] or [P, L]
  std::span<const std::int32_t> map;            ///< [B, K]: row of a route, negative for a dropped one
  std::span<const float> weights_f32;           ///< [B, K], this or the next
  std::span<const std::uint16_t> weights_bf16;  ///< [B, K]
  std::span<const std::uint16_t> partial;       ///< [B, L]
  std::span<const std::uint16_t> shared;        ///< [B, H], this rank's partial of the shared experts
  std::span<const std::uint16_t> residual;      ///< [B, H], where the step has one
};

/// A captured step, checked. Names of its tensors: "layer.LAYER.rank.RANK." + rows, map, weights, partial,
/// shared or residual; docs/checkpoints.md has the table. Copies are cheap; the spans are valid while any
/// copy lives. Immutable, so any number of threads may read it. The file must not be shortened while it is
/// open (see MappedFile).
class CapturedStep {
 public:
  /// Opens the file. Throws Error(Code::file) naming the file, the tensor, the offending value and what is
  /// accepted: an ill-formed file, a tensor with another name, a rank of 0..T-1 that a layer lacks, a tensor
  /// that its form lacks or must not have, a dtype or shape that does not fit, or a map entry that is no row.
  static CapturedStep open(const std::filesystem::path& path);

  /// The same from a file that is already open.
  explicit CapturedStep(const SafetensorsFile& file);

  /// Sizes and form; `layers` ascending, all sizes at least 1 (top_k: 0 where unknown).
  const StepSpec& spec() const noexcept;

  /// Inputs of one rank and layer. rows, partial, shared and residual are aligned to 16 bytes (copied if the
  /// file has them elsewhere), the others to their element. Throws Error(Code::invalid_argument) if the step
  /// has no such layer or rank.
  const RankInputs& inputs(int layer, int rank) const;

 private:
  struct Contents;
  std::shared_ptr<const Contents> contents_;
};

/// Gives the inputs of one rank and layer to write_captured_step. What the spans point to must live until
/// that returns.
using StepInputs = std::function<RankInputs(int layer, int rank)>;

/// Writes a step that CapturedStep reads back, every layer of `spec.layers` with every rank. Throws
/// Error(Code::invalid_argument) naming layer, rank, tensor, value and what is accepted if the spans do not
/// fit `spec`, Error(Code::file) or (Code::resource: the disk is full) for the file, of which then nothing is
/// left.
void write_captured_step(const std::filesystem::path& path, const StepSpec& spec, const StepInputs& inputs);

}  // namespace moetail::io
