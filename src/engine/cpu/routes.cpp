// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/routes.hpp"

#include "engine/cpu/phases.hpp"

namespace moetail::cpu {

using protocol::FaultKind;
using protocol::Region;
using protocol::Site;
using protocol::Spot;

bool routes_from_memory(Cluster& cluster, const RoutedInput& routed, int token, Routes& routes) {
  const auto& shape = cluster.view().layout.shape;
  for (int k = 0; k < shape.top_k; ++k) {
    const std::size_t route = static_cast<std::size_t>(token) * shape.top_k + k;
    routes.weights[k] = routed.weight_type == WeightType::fp32
                            ? static_cast<const float*>(routed.weights)[route]
                            : protocol::f32_from_bf16(static_cast<const u16*>(routed.weights)[route]);
    std::size_t row = route;
    if (routed.form == Form::permuted) {
      const i32 index = routed.map[route];
      if (index >= routed.num_rows) {
        Spot spot{Site::latent_publish, cluster.view().rank, token, k};
        spot.expected = static_cast<u64>(routed.num_rows);
        spot.seen = static_cast<u64>(index);
        cluster.raise(FaultKind::map_index, spot);
        return false;
      }
      if (index < 0) {
        routes.rows[k] = nullptr;
        continue;
      }
      row = static_cast<std::size_t>(index);
    }
    routes.rows[k] = routed.rows + row * shape.latent;
  }
  return true;
}

bool routes_from_slots(Cluster& cluster, int token, int begin_line, int end_line, Routes& routes) {
  const auto& view = cluster.view();
  const auto& shape = view.layout.shape;
  const u32* weights = view.mine<u32>(Region::weights, cluster.slot(), 0, token);
  const Line* rows = view.mine<Line>(Region::rows, cluster.slot(), 0, token);
  const int row_lines = protocol::lines_of(shape.latent);
  for (int k = 0; k < shape.top_k; ++k) {
    Spot spot{Site::rows_poll, view.rank, token, k};
    u32 weight = 0;
    if (!protocol::wait_until(cluster, spot, [&](Spot&) {
          weight = cluster.load(weights + k);
          return protocol::is_empty(weight) ? 1 : 0;
        }))
      return false;
    // A dropped route is skipped, not multiplied by 0, and its row need not come.
    routes.rows[k] = nullptr;
    if (weight == protocol::kDroppedRoute) continue;
    routes.weights[k] = protocol::float_from_bits(weight);
    const Line* row = rows + static_cast<std::size_t>(k) * row_lines;
    if (!protocol::wait_run(cluster, spot, row, begin_line, end_line)) return false;
    routes.rows[k] = columns_of(row);
  }
  return true;
}

}  // namespace moetail::cpu
