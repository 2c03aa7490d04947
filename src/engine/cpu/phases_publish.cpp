// SPDX-License-Identifier: Apache-2.0
// The phases that put this rank's data into its peers' mailboxes: header, partial rows, shared shards.
#include <algorithm>

#include "engine/cpu/arith.hpp"
#include "engine/cpu/phases.hpp"
#include "engine/cpu/routes.hpp"

namespace moetail::cpu {

using protocol::lines_of;
using protocol::part_of;
using protocol::Region;
using protocol::Site;
using protocol::Spot;

Workspace& workspace() {
  thread_local Workspace buffers;
  return buffers;
}

protocol::Header header_of(const TailCall& call, const protocol::Shape& shape) {
  return {static_cast<u32>(call.batch), static_cast<u32>(call.mode), static_cast<u32>(call.layer),
          protocol::hash_shape(shape, protocol::bits_from_float(shape.eps))};
}

bool shares_reduced(const Cluster& cluster, const TailCall& call) {
  const auto& view = cluster.view();
  return call.shares_reduced &&
         (cluster.count() > 1 || (view.is_common(Region::reduced) && view.ranks() > 1));
}

protocol::Record record_of(const Cluster& cluster, const TailCall& call) {
  // A user who was given the slots may have filled any of them, whether this call then polled them or not.
  const bool gave_slots = call.mode == Mode::front_poll;
  return {call.batch,
          protocol::dirtied_regions(call.mode, shares_reduced(cluster, call), gave_slots, gave_slots)};
}

bool publish_own_header(Cluster& cluster, const TailCall& call) {
  if (!cluster.reach(Site::header_publish)) return false;
  if (cluster.index() == 0)
    protocol::publish_header(cluster, cluster.view(), cluster.slot(),
                             header_of(call, cluster.view().layout.shape));
  return true;
}

bool check_all_headers(Cluster& cluster, const TailCall& call) {
  if (!cluster.reach(Site::header_poll)) return false;
  // One cluster compares; the others find out by the poison that a mismatch leaves.
  if (cluster.index() != 0) return true;
  return protocol::check_headers(cluster, cluster.view(), cluster.slot(),
                                 header_of(call, cluster.view().layout.shape));
}

void put_partial(Cluster& cluster, bool twoshot, int token, const Line* row, int begin, int end) {
  const auto& view = cluster.view();
  if (!twoshot) {
    protocol::put_run(cluster, view, Region::latent, cluster.slot(), view.rank, token, begin, row + begin,
                      end - begin);
    return;
  }
  const int chunk = lines_of(view.layout.shape.chunk());
  for (int i = 0; i < view.ranks(); ++i) {
    const int owner = (view.rank + i) % view.ranks();
    const int chunk_begin = owner * chunk;
    const int from = std::max(begin, chunk_begin), to = std::min(end, chunk_begin + chunk);
    if (from >= to) continue;
    Line* mailbox = view.at<Line>(owner, Region::recv, cluster.slot(), view.rank, token);
    protocol::store_run(cluster, mailbox + (from - chunk_begin), row + from, to - from);
  }
}

bool publish_latents(Cluster& cluster, const TailCall& call) {
  const bool twoshot = call.mode == Mode::twoshot;
  if (!cluster.reach(twoshot ? Site::twoshot_push : Site::latent_publish)) return false;
  const auto& shape = cluster.view().layout.shape;
  const auto lines = part_of(static_cast<u64>(lines_of(shape.latent)), cluster.index(), cluster.count());
  const int begin = static_cast<int>(lines.begin), end = static_cast<int>(lines.end);
  Workspace& buffers = workspace();
  u16* row = buffers.row.get(static_cast<std::size_t>(std::max(shape.latent, shape.hidden)));
  Line* row_lines = reinterpret_cast<Line*>(row);
  for (int token = 0; token < call.batch; ++token) {
    if (call.routed.form == Form::partial) {
      const u16* given = call.routed.partial + static_cast<std::size_t>(token) * shape.latent;
      protocol::clean_run(row_lines + begin, reinterpret_cast<const Line*>(given) + begin, end - begin);
    } else {
      Routes routes;
      const bool there = call.polls_slots ? routes_from_slots(cluster, token, begin, end, routes)
                                          : routes_from_memory(cluster, call.routed, token, routes);
      if (!there) return false;
      arith().finalize(routes.rows, routes.weights, shape.top_k, begin * protocol::kLineColumns,
                       end * protocol::kLineColumns, row);
    }
    put_partial(cluster, twoshot, token, row_lines, begin, end);
  }
  return true;
}

bool push_shards(Cluster& cluster, const TailCall& call) {
  if (!cluster.reach(Site::shared_push)) return false;
  const auto& view = cluster.view();
  const auto& shape = view.layout.shape;
  const int shard = lines_of(shape.shard());
  const auto lines = part_of(static_cast<u64>(shard), cluster.index(), cluster.count());
  const int begin = static_cast<int>(lines.begin), end = static_cast<int>(lines.end);
  for (int token = 0; token < call.batch; ++token) {
    for (int i = 0; i < view.ranks(); ++i) {
      const int peer = (view.rank + i) % view.ranks();
      Line* mailbox = view.at<Line>(peer, Region::shared, cluster.slot(), view.rank, token);
      if (call.polls_shared) {
        Spot spot{Site::rows_poll, view.rank, token};
        const Line* slot = view.mine<Line>(Region::polled_shared, cluster.slot(), 0, token) + peer * shard;
        if (!protocol::wait_run(cluster, spot, slot, begin, end)) return false;
        protocol::store_run(cluster, mailbox + begin, slot + begin, end - begin);
      } else {
        const u16* given = call.shared + static_cast<std::size_t>(token) * shape.hidden;
        protocol::store_cleaned_run(cluster, mailbox + begin,
                                    reinterpret_cast<const Line*>(given) + peer * shard + begin, end - begin);
      }
    }
  }
  return true;
}

}  // namespace moetail::cpu
