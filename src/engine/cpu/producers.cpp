// SPDX-License-Identifier: Apache-2.0
// Launches around the tails: the experts' parts that the library can play itself, the push, and the consumer.
#include <algorithm>

#include "engine/cpu/phases.hpp"
#include "engine/cpu/routes.hpp"

namespace moetail::cpu {
namespace {

using protocol::lines_of;
using protocol::Region;
using protocol::Site;
using protocol::Spot;

Line* clean_row(const u16* row, int columns) {
  Line* clean = reinterpret_cast<Line*>(workspace().row.get(static_cast<std::size_t>(columns)));
  protocol::clean_run(clean, reinterpret_cast<const Line*>(row), lines_of(columns));
  return clean;
}

}  // namespace

bool publish_partials(Cluster& cluster, const TailCall& call) {
  if (!publish_latents(cluster, call)) return false;
  cluster.ring_all();
  return true;
}

bool push_shared(Cluster& cluster, const TailCall& call) {
  if (!publish_own_header(cluster, call)) return false;
  if (!push_shards(cluster, call)) return false;
  cluster.ring_all();
  return true;
}

bool fill_slots(Cluster& cluster, const TailCall& call) {
  if (!cluster.reach(Site::rows_fill)) return false;
  const auto& shape = cluster.view().layout.shape;
  for (int token = 0; token < call.batch; ++token) {
    Routes routes;
    if (!routes_from_memory(cluster, call.routed, token, routes)) return false;
    for (int k = 0; k < shape.top_k; ++k) {
      if (routes.rows[k] == nullptr)
        fill_dropped(cluster, token, k);
      else
        fill_route_row(cluster, token, k, routes.rows[k], routes.weights[k]);
    }
    if (call.polls_shared)
      fill_shared_row(cluster, token, call.shared + static_cast<std::size_t>(token) * shape.hidden);
  }
  return true;
}

bool publish_partial_row(Cluster& cluster, bool twoshot, int token, const u16* row) {
  if (!cluster.reach(twoshot ? Site::twoshot_push : Site::latent_publish)) return false;
  const int columns = cluster.view().layout.shape.latent;
  put_partial(cluster, twoshot, token, clean_row(row, columns), 0, lines_of(columns));
  cluster.ring_all();
  return true;
}

void fill_route_row(Cluster& cluster, int token, int k, const u16* row, float weight) {
  const auto& view = cluster.view();
  const int columns = view.layout.shape.latent;
  Line* slot = view.mine<Line>(Region::rows, cluster.slot(), 0, token) +
               static_cast<std::size_t>(k) * lines_of(columns);
  protocol::store_cleaned_run(cluster, slot, reinterpret_cast<const Line*>(row), lines_of(columns));
  cluster.store(view.mine<u32>(Region::weights, cluster.slot(), 0, token) + k,
                protocol::weight_word(protocol::bits_from_float(weight)));
  cluster.ring(view.rank);
}

void fill_dropped(Cluster& cluster, int token, int k) {
  const auto& view = cluster.view();
  cluster.store(view.mine<u32>(Region::weights, cluster.slot(), 0, token) + k, protocol::kDroppedRoute);
  cluster.ring(view.rank);
}

void fill_shared_row(Cluster& cluster, int token, const u16* row) {
  const auto& view = cluster.view();
  const int columns = view.layout.shape.hidden;
  protocol::store_cleaned_run(cluster, view.mine<Line>(Region::polled_shared, cluster.slot(), 0, token),
                              reinterpret_cast<const Line*>(row), lines_of(columns));
  cluster.ring(view.rank);
}

bool consume_out_row(Cluster& cluster, int token, u16* row) {
  const auto& view = cluster.view();
  const int columns = view.layout.shape.hidden, lines = lines_of(columns);
  Spot spot{Site::consume, -1, token};
  Line* out = view.mine<Line>(Region::out, 0, 0, token);
  bool there = cluster.reach(Site::consume);
  if (there) {
    protocol::Runs runs;
    runs.count = view.ranks();
    const int shard = lines / view.ranks();
    runs.want(shard);
    for (int i = 0; i < runs.count; ++i) runs.from[i] = out + i * shard;
    there = protocol::wait_runs(cluster, spot, runs);
  }
  if (there) there = cluster.reach(Site::consume_rearm);
  if (!there) {
    std::fill(row, row + columns, protocol::kBf16Nan);
    return false;
  }
  std::copy_n(columns_of(out), columns, row);
  protocol::arm_lines(cluster, out, {0, static_cast<u64>(lines)});
  return true;
}

bool take_rows(Cluster& cluster, int batch, u16* destination) {
  const auto hidden = static_cast<std::size_t>(cluster.view().layout.shape.hidden);
  bool all = true;
  for (int token = 0; token < batch; ++token)
    all &= consume_out_row(cluster, token, destination + token * hidden);
  return all;
}

}  // namespace moetail::cpu
