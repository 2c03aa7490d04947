// SPDX-License-Identifier: Apache-2.0
// A whole call's inputs, or a layer's weights, from a seed: what tests and `moetail run` feed the tail with.
#pragma once

#include <vector>

#include "verify/generate.hpp"
#include "verify/problem.hpp"

namespace moetail::verify {

/// What the inputs of a call look like. The routed result of one rank and the sum of the shared partials over
/// ranks have deviations of about 1 / sqrt(K) and 1.
struct InputOptions {
  Form form =
      Form::expanded;  ///< published: generated as rows, like expanded, for the producer to start from
  WeightType weight_type = WeightType::fp32;
  bool residual = false;
  double dropped_share = 0.1;  ///< of routes, permuted form only
  int spare_rows = 3;          ///< rows that no route points to, permuted form only
  Specials specials;           ///< put into rows, partials, shared partials and the residual
};

/// One rank's arrays; those that the form does not use are empty.
struct RankArrays {
  std::vector<u16> rows, partial, shared, weights_bf16;
  std::vector<float> weights_fp32;
  std::vector<i32> map;
};

/// Inputs of one call; `ranks` points into `arrays` and `residual`, and stays right when the object is moved.
struct CallInputs {
  std::vector<RankArrays> arrays;
  std::vector<u16> residual;  ///< [B, H] or empty
  std::vector<RankInput> ranks;

  CallInputs() = default;
  CallInputs(CallInputs&&) = default;
  CallInputs& operator=(CallInputs&&) = default;
  CallInputs(const CallInputs&) = delete;
  CallInputs& operator=(const CallInputs&) = delete;
};

/// Inputs of a call of `batch` tokens at `shape`. Another step of a run is another seed. Throws
/// Error(invalid_argument) for a batch below 1 and where an option is out of range.
CallInputs make_inputs(const Shape& shape, int batch, u64 seed, int layer, const InputOptions& options = {});

/// A layer's weights: w_up [H, L] of deviation 1 / sqrt(L), so that outputs are of order 1, and gamma [L], 1
/// +- 0.1.
struct LayerWeights {
  std::vector<u16> w_up, gamma;
};

LayerWeights make_layer(const Shape& shape, u64 seed, int layer, int threads = 0);

/// The call as the judges take it. The arguments must outlive it.
Problem make_problem(const Shape& shape, int batch, bool twoshot, const CallInputs& inputs,
                     const LayerWeights& layer);

}  // namespace moetail::verify
