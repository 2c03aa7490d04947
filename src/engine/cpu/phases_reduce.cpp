// SPDX-License-Identifier: Apache-2.0
// The phases that take data out of this rank's mailboxes: latent rows (direct, shared among clusters,
// two-shot), the output columns, and the end of a call.
#include <algorithm>
#include <cmath>

#include "engine/cpu/arith.hpp"
#include "engine/cpu/phases.hpp"

namespace moetail::cpu {
namespace {

using protocol::lines_of;
using protocol::part_of;
using protocol::Region;
using protocol::Runs;
using protocol::Site;
using protocol::Spot;

// Columns that are waited for and summed at a time: 8 ranks' lines of them stay in L1 in between.
constexpr int kSumColumns = 1792;
// Lines of fp32 sums for a line of bf16.
constexpr int kReducedLines = 2;

/// Waits for one run from every rank and sums them in rank order into `sum`, `columns` columns.
bool sum_runs(Cluster& cluster, Spot& spot, Runs& runs, int columns, float* sum) {
  for (int begin = 0; begin < columns; begin += kSumColumns) {
    const int end = std::min(begin + kSumColumns, columns);
    runs.want(lines_of(end));
    if (!protocol::wait_runs(cluster, spot, runs)) return false;
    const u16* rows[protocol::kMaxRanks];
    for (int i = 0; i < runs.count; ++i)
      rows[i] = columns_of(runs.from[protocol::sum_source(i, cluster.view().rank, runs.count)]) + begin;
    arith().sum_rows(rows, runs.count, end - begin, sum + begin);
  }
  return true;
}

/// Lines [begin, end) of one token's x, summed from every rank's latent mailbox.
bool sum_latents(Cluster& cluster, int token, int begin, int end, float* sum) {
  const auto& view = cluster.view();
  Runs runs;
  runs.count = view.ranks();
  for (int i = 0; i < runs.count; ++i)
    runs.from[i] = view.mine<Line>(Region::latent, cluster.slot(), i, token) + begin;
  Spot spot{Site::latent_poll, -1, token};
  return sum_runs(cluster, spot, runs, (end - begin) * protocol::kLineColumns, sum);
}

/// Fills in token rows of the operand as their fp32 sums become known.
class Normalizer {
 public:
  Normalizer(const Cluster& cluster, const TailCall& call)
      : call_(call), shape_(cluster.view().layout.shape) {
    const auto latent = static_cast<std::size_t>(shape_.latent), batch = static_cast<std::size_t>(call.batch);
    operand_ = workspace().operand.get(batch * latent);
    scale_ = workspace().scale.get(batch);
  }
  void add(int token, const float* sum) {
    const float squares = arith().norm_operand(sum, call_.norm, shape_.latent,
                                               operand_ + static_cast<std::size_t>(token) * shape_.latent);
    scale_[token] = 1.0f / std::sqrt(squares / static_cast<float>(shape_.latent) + shape_.eps);
  }
  Normed normed() const { return {operand_, scale_}; }

 private:
  const TailCall& call_;
  const protocol::Shape& shape_;
  u16* operand_;
  float* scale_;
};

float* sum_buffer(const Cluster& cluster) {
  return workspace().sum.get(static_cast<std::size_t>(cluster.view().layout.shape.latent));
}

}  // namespace

bool reduce_latents(Cluster& cluster, const TailCall& call, Normed& normed) {
  if (!cluster.reach(Site::latent_poll)) return false;
  Normalizer normalizer(cluster, call);
  float* sum = sum_buffer(cluster);
  for (int token = 0; token < call.batch; ++token) {
    if (!sum_latents(cluster, token, 0, lines_of(cluster.view().layout.shape.latent), sum)) return false;
    normalizer.add(token, sum);
  }
  normed = normalizer.normed();
  return true;
}

bool publish_reduced(Cluster& cluster, const TailCall& call) {
  if (!cluster.reach(Site::reduced_publish)) return false;
  const auto& view = cluster.view();
  const auto lines = static_cast<u64>(lines_of(view.layout.shape.latent));
  const auto part = protocol::shared_sum_part(view, view.rank, call.batch, cluster.index(), cluster.count());
  float* sum = sum_buffer(cluster);
  Line* row = reinterpret_cast<Line*>(sum);
  for (u64 at = part.begin; at < part.end;) {
    // A batch may have more lines than an int counts; a row has not.
    const int token = static_cast<int>(at / lines), begin = static_cast<int>(at % lines);
    const int end = static_cast<int>(std::min(lines, part.end - at + static_cast<u64>(begin)));
    if (!sum_latents(cluster, token, begin, end, sum)) return false;
    const int reduced = (end - begin) * kReducedLines;
    // fp32 NaNs may carry any payload; the sentinel's is one of them.
    protocol::clean_run(row, row, reduced);
    protocol::store_run(cluster,
                        view.mine<Line>(Region::reduced, cluster.slot(), 0, token) + begin * kReducedLines,
                        row, reduced);
    at += static_cast<u64>(end - begin);
  }
  if (view.is_common(Region::reduced))
    cluster.ring_all();
  else
    cluster.ring(view.rank);
  return true;
}

bool reduce_shared(Cluster& cluster, const TailCall& call, Normed& normed) {
  if (!cluster.reach(Site::reduced_poll)) return false;
  const auto& view = cluster.view();
  const bool is_common = view.is_common(Region::reduced);
  // A batch's reduced rows lie one after the other, and a rank's part of them in one piece.
  const Line* rows = view.mine<Line>(Region::reduced, cluster.slot(), 0, 0);
  Runs runs;
  runs.count = view.ranks();
  for (int i = 0; i < runs.count; ++i) {
    if (!is_common && i != view.rank) continue;
    const auto part = protocol::shared_sum_part(view, i, call.batch, 0, 1);
    runs.from[i] = rows + part.begin * kReducedLines;
    runs.lines[i] = static_cast<protocol::i64>(part.end - part.begin) * kReducedLines;
  }
  Spot spot{Site::reduced_poll, view.rank};
  if (!protocol::wait_runs(cluster, spot, runs)) return false;
  Normalizer normalizer(cluster, call);
  for (int token = 0; token < call.batch; ++token)
    normalizer.add(
        token, reinterpret_cast<const float*>(view.mine<Line>(Region::reduced, cluster.slot(), 0, token)));
  normed = normalizer.normed();
  return true;
}

bool sum_own_chunks(Cluster& cluster, const TailCall& call) {
  if (!cluster.reach(Site::twoshot_sum)) return false;
  const auto& view = cluster.view();
  const int columns = view.layout.shape.chunk();
  const int lines = lines_of(columns);
  float* sum = sum_buffer(cluster);
  u16* rounded = workspace().row.get(static_cast<std::size_t>(columns));
  for (int token = cluster.index(); token < call.batch; token += cluster.count()) {
    Runs runs;
    runs.count = view.ranks();
    for (int i = 0; i < runs.count; ++i)
      runs.from[i] = view.mine<Line>(Region::recv, cluster.slot(), i, token);
    Spot spot{Site::twoshot_sum, -1, token};
    if (!sum_runs(cluster, spot, runs, columns, sum)) return false;
    for (int c = 0; c < columns; ++c) rounded[c] = protocol::bf16_from_f32(sum[c]);
    protocol::put_run(cluster, view, Region::gather, cluster.slot(), 0, token, view.rank * lines,
                      reinterpret_cast<const Line*>(rounded), lines);
  }
  if (!cluster.reach(Site::gather_publish)) return false;
  cluster.ring_all();
  return true;
}

bool reduce_gathered(Cluster& cluster, const TailCall& call, Normed& normed) {
  if (!cluster.reach(Site::gather_poll)) return false;
  const auto& view = cluster.view();
  const int chunk = lines_of(view.layout.shape.chunk());
  Normalizer normalizer(cluster, call);
  float* sum = sum_buffer(cluster);
  for (int token = 0; token < call.batch; ++token) {
    const Line* row = view.mine<Line>(Region::gather, cluster.slot(), 0, token);
    Runs runs;
    runs.count = view.ranks();
    runs.want(chunk);
    for (int i = 0; i < runs.count; ++i) runs.from[i] = row + i * chunk;
    Spot spot{Site::gather_poll, -1, token};
    if (!protocol::wait_runs(cluster, spot, runs)) return false;
    const u16* rows[1] = {columns_of(row)};
    arith().sum_rows(rows, 1, view.layout.shape.latent, sum);
    normalizer.add(token, sum);
  }
  normed = normalizer.normed();
  return true;
}

bool project_and_publish(Cluster& cluster, const TailCall& call, const Normed& normed) {
  const auto& view = cluster.view();
  const auto& shape = view.layout.shape;
  const int shard = lines_of(shape.shard());
  const auto part = part_of(static_cast<u64>(shard), cluster.index(), cluster.count());
  const int begin = static_cast<int>(part.begin), lines = static_cast<int>(part.end - part.begin);
  const int first = begin * protocol::kLineColumns, columns = lines * protocol::kLineColumns;
  Workspace& buffers = workspace();
  float* dot = buffers.dot.get(static_cast<std::size_t>(call.batch) * columns);
  cluster.mark("dot");
  if (columns > 0)
    arith().dot(call.shard + static_cast<std::size_t>(first) * shape.latent, normed.operand, shape.latent,
                columns, call.batch, dot, columns);
  if (!cluster.reach(Site::shared_poll)) return false;
  float* shared = buffers.shared.get(static_cast<std::size_t>(columns));
  u16* row = buffers.row.get(static_cast<std::size_t>(columns));
  for (int token = 0; token < call.batch && columns > 0; ++token) {
    Runs runs;
    runs.count = view.ranks();
    for (int i = 0; i < runs.count; ++i)
      runs.from[i] = view.mine<Line>(Region::shared, cluster.slot(), i, token) + begin;
    Spot spot{Site::shared_poll, -1, token};
    if (!sum_runs(cluster, spot, runs, columns, shared)) return false;
    const std::size_t column =
        static_cast<std::size_t>(token) * shape.hidden + view.rank * shape.shard() + first;
    arith().finish(dot + static_cast<std::size_t>(token) * columns, normed.scale[token], shared,
                   call.residual == nullptr ? nullptr : call.residual + column, columns, row);
    protocol::put_run(cluster, view, Region::out, 0, 0, token, view.rank * shard + begin,
                      reinterpret_cast<const Line*>(row), lines);
  }
  if (!cluster.reach(Site::out_publish)) return false;
  cluster.ring_all();
  return true;
}

bool rearm_and_finish(Cluster& cluster, const TailCall& call) {
  if (!cluster.reach(Site::rearm)) return false;
  const auto record = record_of(cluster, call);
  // After the output is on its way, where nobody waits for it.
  protocol::rearm_previous(cluster, cluster.view(), cluster.epoch(),
                           protocol::record_to_rearm(cluster, cluster.view(), cluster.epoch(), record),
                           cluster.index(), cluster.count());
  protocol::finish_call(cluster, cluster.view(), cluster.epoch(), record, cluster.count());
  return true;
}

}  // namespace moetail::cpu
