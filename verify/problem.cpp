// SPDX-License-Identifier: Apache-2.0
// Checks of a problem before it is judged: a judge that reads past an array would accuse the wrong side.
#include "verify/problem.hpp"

#include <cstddef>
#include <string>

#include "base/error.hpp"
#include "protocol/numerics.hpp"

namespace moetail::verify {
namespace {

void demand(const void* array, const std::string& name) {
  if (array == nullptr) base::bad_argument(name, "null", "an array");
}

void check_routes(const RankInput& input, const Shape& shape, int batch, const std::string& rank) {
  if (input.top_k != shape.top_k)
    base::bad_argument(rank + ".top_k", input.top_k, fmt::format("{}", shape.top_k));
  if (input.num_rows < 0) base::bad_argument(rank + ".num_rows", input.num_rows, "0 or more");
  demand(input.weights, rank + ".weights");
  if (input.num_rows > 0) demand(input.rows, rank + ".rows");
  const bool mapped = input.form == Form::permuted || (input.form == Form::published && input.map != nullptr);
  if (!mapped) {
    if (input.num_rows != batch * input.top_k)
      base::bad_argument(rank + ".num_rows", input.num_rows,
                         fmt::format("batch * top_k = {}", batch * input.top_k));
    return;
  }
  demand(input.map, rank + ".map");
  for (int i = 0; i < batch * input.top_k; ++i) {
    if (input.map[i] >= input.num_rows)
      base::bad_argument(fmt::format("{}.map[{}, {}]", rank, i / input.top_k, i % input.top_k), input.map[i],
                         fmt::format("below num_rows = {}, negative for a dropped route", input.num_rows));
  }
}

}  // namespace

void check_problem(const Problem& problem) {
  const Shape& shape = problem.shape;
  const protocol::ShapeRule rule = protocol::first_broken_rule(shape);
  if (rule != protocol::ShapeRule::ok) {
    const protocol::RuleText text = protocol::rule_text(rule);
    base::bad_argument(text.field, protocol::rule_value(shape, rule), text.accepted);
  }
  if (problem.twoshot && !protocol::allows_twoshot(shape)) {
    const protocol::RuleText text = protocol::rule_text(protocol::ShapeRule::latent_twoshot);
    base::bad_argument(text.field, shape.latent, text.accepted);
  }
  if (problem.batch < 1) base::bad_argument("batch", problem.batch, "1 or more");
  if (problem.ranks.size() != static_cast<std::size_t>(shape.ranks))
    base::bad_argument("ranks.size()", problem.ranks.size(), fmt::format("{}", shape.ranks));
  demand(problem.w_up, "w_up");
  demand(problem.gamma, "gamma");
  for (int r = 0; r < shape.ranks; ++r) {
    const RankInput& input = problem.ranks[r];
    const std::string rank = fmt::format("ranks[{}]", r);
    demand(input.shared, rank + ".shared");
    if ((input.residual == nullptr) != (problem.ranks[0].residual == nullptr))
      base::bad_argument(rank + ".residual", input.residual == nullptr ? "null" : "an array",
                         "the same on every rank");
    if (has_partial(input))
      demand(input.partial, rank + ".partial");
    else
      check_routes(input, shape, problem.batch, rank);
  }
}

const u16* route_row(const RankInput& input, const Shape& shape, int token, int k) {
  const std::ptrdiff_t route = static_cast<std::ptrdiff_t>(token) * input.top_k + k;
  const bool mapped = input.form == Form::permuted || (input.form == Form::published && input.map != nullptr);
  const std::ptrdiff_t row = mapped ? input.map[route] : route;
  return row < 0 ? nullptr : input.rows + row * shape.latent;
}

float route_weight(const RankInput& input, int token, int k) {
  const std::ptrdiff_t route = static_cast<std::ptrdiff_t>(token) * input.top_k + k;
  if (input.weight_type == WeightType::fp32) return static_cast<const float*>(input.weights)[route];
  return protocol::f32_from_bf16(static_cast<const u16*>(input.weights)[route]);
}

}  // namespace moetail::verify
