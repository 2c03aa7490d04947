// SPDX-License-Identifier: Apache-2.0
// The two tails, each a spine of named phases.
#include "engine/cpu/phases.hpp"

namespace moetail::cpu {

bool front_tail(Cluster& cluster, const TailCall& call) {
  if (!cluster.reach(protocol::Site::epoch)) return false;
  if (!publish_own_header(cluster, call)) return false;
  if (!publish_latents(cluster, call)) return false;
  if (!push_shards(cluster, call)) return false;
  cluster.ring_all();
  if (!check_all_headers(cluster, call)) return false;
  Normed normed;
  if (!reduce_latents(cluster, call, normed)) return false;
  if (!project_and_publish(cluster, call, normed)) return false;
  return rearm_and_finish(cluster, call);
}

bool wave_tail(Cluster& cluster, const TailCall& call) {
  if (!cluster.reach(protocol::Site::epoch)) return false;
  if (!check_all_headers(cluster, call)) return false;
  Normed normed;
  if (call.mode == Mode::twoshot) {
    if (!sum_own_chunks(cluster, call)) return false;
    if (!reduce_gathered(cluster, call, normed)) return false;
  } else if (shares_reduced(cluster, call)) {
    if (!publish_reduced(cluster, call)) return false;
    if (!reduce_shared(cluster, call, normed)) return false;
  } else {
    if (!reduce_latents(cluster, call, normed)) return false;
  }
  if (!project_and_publish(cluster, call, normed)) return false;
  return rearm_and_finish(cluster, call);
}

}  // namespace moetail::cpu
