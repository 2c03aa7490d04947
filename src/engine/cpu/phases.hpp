// SPDX-License-Identifier: Apache-2.0
// The named phases that the tails are made of, in the order in which a call meets them. Each does this
// cluster's part of the work and returns false when the call has to end.
#pragma once

#include "engine/cpu/launch.hpp"
#include "engine/cpu/scratch.hpp"
#include "protocol/numerics.hpp"

namespace moetail::cpu {

/// Buffers of a thread, kept between launches.
struct Workspace {
  Scratch<u16> row;       // [max(L, H)] a row on its way into a mailbox
  Scratch<float> sum;     // [L] fp32 sum over ranks
  Scratch<u16> operand;   // [B, L] bf16(gamma * x)
  Scratch<float> scale;   // [B] 1 / rms
  Scratch<float> dot;     // [B, columns of this cluster]
  Scratch<float> shared;  // [columns of this cluster]
};
Workspace& workspace();

/// The matrix operand of the up projection and the factor that finishes its dot products, for all tokens.
struct Normed {
  const u16* operand;  // [B, L]
  const float* scale;  // [B]
};

protocol::Header header_of(const TailCall& call, const protocol::Shape& shape);
protocol::Record record_of(const Cluster& cluster, const TailCall& call);

/// True where reduced rows are shared, among the clusters of a rank or on a common copy among those of all ranks: alone there
/// is nobody to share them with.
bool shares_reduced(const Cluster& cluster, const TailCall& call);

inline const u16* columns_of(const Line* lines) {
  return reinterpret_cast<const u16*>(lines);
}

bool publish_own_header(Cluster& cluster, const TailCall& call);
bool check_all_headers(Cluster& cluster, const TailCall& call);

/// Stores lines [begin, end) of a clean partial row where they belong: to every rank, or each chunk to its
/// two-shot owner.
void put_partial(Cluster& cluster, bool twoshot, int token, const Line* row, int begin, int end);
bool publish_latents(Cluster& cluster, const TailCall& call);
bool push_shards(Cluster& cluster, const TailCall& call);

bool reduce_latents(Cluster& cluster, const TailCall& call, Normed& normed);
bool publish_reduced(Cluster& cluster, const TailCall& call);
bool reduce_shared(Cluster& cluster, const TailCall& call, Normed& normed);
bool sum_own_chunks(Cluster& cluster, const TailCall& call);
bool reduce_gathered(Cluster& cluster, const TailCall& call, Normed& normed);

bool project_and_publish(Cluster& cluster, const TailCall& call, const Normed& normed);
bool rearm_and_finish(Cluster& cluster, const TailCall& call);

}  // namespace moetail::cpu
