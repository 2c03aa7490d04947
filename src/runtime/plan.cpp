// SPDX-License-Identifier: Apache-2.0
// What a call would run and what it costs, without running it.
#include <algorithm>
#include <thread>

#include "base/error.hpp"
#include "runtime/impl.hpp"

namespace moetail {
namespace {

/// Bytes that a call stores into, polls from and re-arms in one region, over all ranks.
std::uint64_t mailbox_traffic(const protocol::Layout& layout, std::uint32_t dirtied, int batch) {
  std::uint64_t bytes = 0;
  for (const auto& spec : protocol::kRegionTable) {
    const auto i = static_cast<std::size_t>(spec.region);
    const bool is_out = spec.region == protocol::Region::out;
    if (!is_out && (dirtied & protocol::region_bit(spec.region)) == 0) continue;
    const auto rows = spec.rows == protocol::RowCount::one ? 1u : static_cast<unsigned>(batch);
    const auto sources = spec.per_source ? static_cast<unsigned>(layout.shape.ranks) : 1u;
    bytes += 3 * layout.row_bytes[i] * rows * sources;
  }
  return bytes * static_cast<std::uint64_t>(layout.shape.ranks);
}

std::uint64_t routed_bytes(const PlanRequest& request) {
  const auto batch = static_cast<std::uint64_t>(request.batch),
             latent = static_cast<std::uint64_t>(request.shape.latent);
  const std::uint64_t routes = batch * static_cast<std::uint64_t>(request.shape.top_k);
  const std::uint64_t weight_bytes = request.weights == WeightType::fp32 ? 4 : 2;
  switch (request.form) {
    case Form::expanded: return routes * (latent * 2 + weight_bytes);
    case Form::permuted: return routes * (latent * 2 + weight_bytes + 4);
    case Form::partial:
    case Form::published: return batch * latent * 2;
  }
  return 0;
}

}  // namespace

Plan make_plan(const PlanRequest& request, const Policy& policy) {
  const Shape& shape = request.shape;
  runtime::check_shape(shape);
  runtime::check_batch(shape, request.batch);
  if (request.threads < 0) base::bad_argument("threads", request.threads, "0 (one a core) or more");
  Plan plan;
  plan.mode = runtime::resolve_mode(request.mode, shape, request.batch, policy);
  plan.shares_reduced = policy.shares(plan.mode, request.batch);
  const int threads = request.threads > 0
                          ? request.threads
                          : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  plan.clusters = std::max(1, threads / shape.ranks);
  plan.columns_per_cluster = (shape.shard() / 8 + plan.clusters - 1) / plan.clusters * 8;
  const auto batch = static_cast<std::uint64_t>(request.batch),
             ranks = static_cast<std::uint64_t>(shape.ranks);
  const auto hidden = static_cast<std::uint64_t>(shape.hidden),
             latent = static_cast<std::uint64_t>(shape.latent);
  plan.weight_bytes = (hidden + ranks) * latent * 2;  // and gamma on every rank
  plan.input_bytes = ranks * routed_bytes(request) + ranks * batch * hidden * 2;
  if (request.residual) plan.input_bytes += batch * hidden * 2;
  plan.output_bytes = ranks * batch * hidden * 2;
  const bool polls = plan.mode == Mode::front_poll;
  plan.mailbox_bytes =
      mailbox_traffic(protocol::make_layout(shape),
                      protocol::dirtied_regions(plan.mode, plan.shares_reduced, polls, polls), request.batch);
  plan.flops = 2 * hidden * latent * batch;
  return plan;
}

}  // namespace moetail
