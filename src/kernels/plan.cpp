// SPDX-License-Identifier: Apache-2.0
#include "kernels/plan.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "protocol/header.hpp"
#include "protocol/layout.hpp"

namespace moetail::kernels {
namespace {

constexpr const auto& kBuckets = kBatchBuckets;

struct Fit {
  Geometry geometry;
  SharedLayout shared;
  int blocks_per_sm = 0;  ///< 0: does not fit
};

std::size_t shared_budget(const DeviceShape& device, int blocks_per_sm) {
  const std::size_t share = device.shared_per_sm / static_cast<std::size_t>(blocks_per_sm);
  return std::min(device.shared_per_block,
                  share > device.shared_reserved ? share - device.shared_reserved : 0);
}

/// Fills the shared memory that `blocks_per_sm` blocks leave each other with stages; false where not even one fits.
bool fit_stages(const Shape& shape, Geometry& g, std::size_t budget, int wanted, int least) {
  for (g.stages = wanted; g.stages >= least; --g.stages)
    if (make_shared_layout(shape, make_cut(shape, g), g).bytes <= budget) return true;
  return false;
}

/// Whole m16 tiles.
bool is_row_block(int rows) {
  return rows % 16 == 0 && rows <= 128;
}

/// Row blocks of 8, 4 or 2 rows a block of the cluster: the one with the fewest rows a cluster walks, larger ones first; or `asked`.
Geometry cut_rows(const Shape& shape, int slices, int max_clusters, int asked) {
  Geometry best;
  int best_rows = 0;
  for (int rows_each = 8; rows_each >= 2; rows_each /= 2) {
    Geometry g;
    g.slices = slices;
    g.row_block = rows_each * slices;
    if (!is_row_block(g.row_block) || (asked != KernelChoice::kOwn && g.row_block != asked)) continue;
    const int blocks = make_cut(shape, g).row_blocks;
    g.clusters = std::min(blocks, max_clusters);
    // Fewer clusters where that costs no further round: each one polls every latent.
    const int rounds = (blocks + g.clusters - 1) / g.clusters;
    g.clusters = (blocks + rounds - 1) / rounds;
    if (best_rows == 0 || rounds * g.row_block < best_rows) {
      best = g;
      best_rows = rounds * g.row_block;
    }
  }
  return best;
}

int rounds_of(const Shape& shape, const Geometry& g) {
  return (make_cut(shape, g).row_blocks + g.clusters - 1) / g.clusters;
}

/// An exchange for each row block of a cluster, if a call is one tile and shared memory has room beside `least_stages`: no row block then waits for
/// the one before it to be over, and the weights' stream does not pause. Else all iterations share one.
void fit_exchanges(const Shape& shape, Geometry& g, std::size_t budget, int bucket, int least_stages) {
  const int rounds = rounds_of(shape, g);
  if (rounds == 1 || bucket > g.tile) return;
  const Geometry shared = g;
  g.exchanges = rounds;
  if (!fit_stages(shape, g, budget, shared.stages, std::min(shared.stages, least_stages))) g = shared;
}

/// The largest bucket for which the second of two row blocks comes after the first one's product, so that a successor's block fits beside: T = 4
/// at B = 1 and 8 7.1 and 7.2 us a layer, 7.7 and 7.9 with both resident (H200, 2026-11-30).
constexpr int kMostBeside = 8;

/// One rank with the device to itself: all weights resident beside a successor's block if that fits, else all resident, else a
/// ring.
Fit fit_alone(const PlanRequest& request, const DeviceShape& device, int bucket) {
  Fit fit;
  const KernelChoice& asked = request.choice;
  for (int max_tile = asked.tile > 0 ? asked.tile : 128; max_tile >= 8 && fit.blocks_per_sm == 0;
       max_tile /= 2) {
    fit.geometry = cut_rows(request.shape, device.max_cluster, device.resident_clusters, asked.row_block);
    fit.geometry.tile = std::min(bucket, max_tile);
    fit.geometry.warps = asked.warps > 0 ? asked.warps : kFewWarps;
    const int rounds = rounds_of(request.shape, fit.geometry);
    const int least = std::min(rounds, 2);
    if (asked.stages > 0 && (asked.stages < least || asked.stages > rounds))
      base::bad_argument("stages", asked.stages,
                         fmt::format("{} to {}, the row blocks that a cluster walks over", least, rounds));
    const int most = asked.stages > 0 ? asked.stages : rounds;
    // With that many warps no two blocks have registers enough.
    const bool is_beside = asked.warps < kManyWarps;
    const std::size_t beside = shared_budget(device, 2);
    if (is_beside && (fit_stages(request.shape, fit.geometry, beside, most, most) ||
                      (asked.stages == 0 && rounds == 2 && bucket <= kMostBeside &&
                       fit_stages(request.shape, fit.geometry, beside, 1, 1))))
      fit.blocks_per_sm = 2;
    else if (fit_stages(request.shape, fit.geometry, shared_budget(device, 1), most,
                        asked.stages > 0 ? most : least))
      fit.blocks_per_sm = 1;
  }
  if (fit.blocks_per_sm > 0)
    fit_exchanges(request.shape, fit.geometry, shared_budget(device, fit.blocks_per_sm), bucket,
                  asked.stages > 0 ? asked.stages : 2);
  // Alone on an SM a block is bound by how many loads its threads have in flight.
  if (asked.warps == 0 && fit.blocks_per_sm == 1 && fit.geometry.tile >= 32) fit.geometry.warps = kManyWarps;
  fit.shared = make_shared_layout(request.shape, make_cut(request.shape, fit.geometry), fit.geometry);
  return fit;
}

/// All ranks in one launch: as few blocks an SM as hold a cluster of every rank, small tiles, a ring of small row blocks.
Fit fit_loopback(const PlanRequest& request, const DeviceShape& device, int bucket) {
  Fit fit;
  const int ranks = request.launch_ranks;
  for (int per_sm = 1; per_sm <= 4; ++per_sm) {
    const int clusters = device.resident_clusters * per_sm / ranks;
    if (clusters == 0) continue;
    for (int row_block = std::min(8 * device.max_cluster, 64); row_block >= 2 * device.max_cluster;
         row_block /= 2) {
      if (row_block % 16 != 0) continue;
      Geometry& g = fit.geometry;
      g.slices = device.max_cluster;
      g.row_block = row_block;
      g.tile = std::min(bucket, 16);
      g.clusters = std::min(clusters, make_cut(request.shape, g).row_blocks);
      const int rounds = rounds_of(request.shape, g);
      if (!fit_stages(request.shape, g, shared_budget(device, per_sm), std::min(rounds, 4),
                      std::min(rounds, 2)))
        continue;
      fit.blocks_per_sm = per_sm;
      fit.shared = make_shared_layout(request.shape, make_cut(request.shape, g), g);
      return fit;
    }
  }
  return fit;
}

/// Blocks of a kernel without clusters, one rank: enough threads for every item, up to two blocks an SM.
int plain_blocks(const PlanRequest& request, const DeviceShape& device, int bucket) {
  const Shape& s = request.shape;
  const long long latent_lines = s.latent / 8, hidden_lines = s.hidden / 8;
  long long items = bucket * hidden_lines;
  if (request.kind == Kind::publish && request.form != Form::partial)
    items = std::max(4 * bucket * latent_lines, request.pushes ? items : 0);
  if (request.kind == Kind::fill) items = std::max(items, bucket * latent_lines * s.top_k);
  const long long most = std::max(1, 2 * device.num_sms / request.launch_ranks);
  const int threads = threads_of(kFewWarps);
  return static_cast<int>(std::clamp<long long>((items + threads - 1) / threads, 1, most));
}

void define(KernelPlan& plan, const char* name, const std::string& value) {
  plan.defines.push_back(fmt::format("MOETAIL_{}={}", name, value));
}
void define(KernelPlan& plan, const char* name, long long value) {
  define(plan, name, std::to_string(value));
}

/// Whether a tail's clusters hand each other summed rows: where it was asked for, and in a front of many ranks and tokens, whose clusters would
/// each poll all latents: 7.5 us a layer instead of 8.0 at B = 32, 15.9 instead of 15.7 at 64, 26.9 instead of 27.8 at 128 (H200, T = 8,
/// 2026-11-30).
bool shares(const PlanRequest& request, int bucket) {
  const bool is_worth = request.kind == Kind::front && request.mode == Mode::front &&
                        request.launch_ranks == 1 && request.shape.ranks >= 8 &&
                        (bucket == 32 || bucket >= 128);
  return request.shares_reduced || is_worth;
}

/// Where a launch lets its successor start: as soon as its weights take nothing that this launch's own loads need. At B = 1 3.29 us a layer
/// after the publication, 3.38 after the errands; at 16 4.96 after the errands, 5.2 after the polls; at 32 8.0 after the polls, 8.4 before (H200,
/// 2026-11-30).
int trigger_of(const PlanRequest& request, int bucket) {
  constexpr int kAfterPoll = 1, kNone = 2, kAfterPublication = 3, kAfterErrands = 4, kAfterWait = 6;
  if (request.launch_ranks > 1) return kNone;
  if (request.choice.trigger >= 0) return request.choice.trigger;
  if (request.kind == Kind::front && request.mode == Mode::front && bucket <= 4 && request.shape.ranks >= 4)
    return kAfterWait;
  if (request.kind == Kind::front && bucket <= 16)
    return request.mode != Mode::twoshot && bucket <= 8 ? kAfterPublication : kAfterErrands;
  return bucket >= 16 ? kAfterPoll : kAfterErrands;
}

void define_all(KernelPlan& plan, const PlanRequest& request, bool exact) {
  const Shape& s = request.shape;
  define(plan, "HIDDEN", s.hidden);
  define(plan, "LATENT", s.latent);
  define(plan, "RANKS", s.ranks);
  define(plan, "TOP_K", s.top_k);
  define(plan, "CAPACITY", s.capacity);
  define(plan, "POLL_CAPACITY", s.poll_capacity);
  define(plan, "EPS", fmt::format("{:a}f", s.eps));
  define(plan, "SHAPE_HASH",
         fmt::format("{}u", protocol::hash_shape(s, __builtin_bit_cast(protocol::u32, s.eps))));
  define(plan, "BATCH", plan.max_batch);
  define(plan, "EXACT_BATCH", exact ? 1 : 0);
  define(plan, "SLICES", plan.geometry.slices);
  define(plan, "CLUSTERS", plan.geometry.clusters);
  define(plan, "ROW_BLOCK", plan.geometry.row_block);
  define(plan, "TILE", plan.geometry.tile);
  define(plan, "STAGES", plan.geometry.stages);
  define(plan, "WARPS", plan.geometry.warps);
  define(plan, "EXCHANGES", plan.geometry.exchanges);
  define(plan, "LAUNCH_RANKS", request.launch_ranks);
  define(plan, "MODE", static_cast<int>(request.mode));
  define(plan, "FORM", static_cast<int>(request.form));
  define(plan, "WEIGHTS_FP32", request.weights == WeightType::fp32 ? 1 : 0);
  define(plan, "RESIDUAL", request.residual ? 1 : 0);
  define(plan, "SHARES", shares(request, plan.max_batch) ? 1 : 0);
  define(plan, "POLLS_SHARED", request.polls_shared ? 1 : 0);
  // A front in two-shot mode may find its shards pushed by another launch.
  const bool is_front = request.kind == Kind::front;
  define(plan, "PUBLISHES", is_front ? 1 : 0);
  define(plan, "PUSHES", request.pushes || (is_front && request.mode != Mode::twoshot) ? 1 : 0);
  define(plan, "EARLY", request.early ? 1 : 0);
  define(plan, "PUT", static_cast<int>(request.put));
  define(plan, "TRIGGER", trigger_of(request, plan.max_batch));
  define(plan, "MIN_BLOCKS", plan.blocks_per_sm);
  if (request.traces) define(plan, "TRACE", 1);
}

void check_request(const PlanRequest& request) {
  const auto rule = protocol::first_broken_rule(request.shape);
  if (rule != protocol::ShapeRule::ok) {
    const auto text = protocol::rule_text(rule);
    base::bad_argument(text.field, protocol::rule_value(request.shape, rule), text.accepted);
  }
  if (request.batch < 1 || request.batch > request.shape.capacity)
    base::bad_argument("batch", request.batch, fmt::format("1 to the capacity, {}", request.shape.capacity));
  if (request.launch_ranks != 1 && request.launch_ranks != request.shape.ranks)
    base::bad_argument("launch_ranks", request.launch_ranks, fmt::format("1 or {}", request.shape.ranks));
  if (request.mode == Mode::twoshot && !protocol::allows_twoshot(request.shape))
    base::bad_argument("latent", request.shape.latent,
                       protocol::rule_text(protocol::ShapeRule::latent_twoshot).accepted);
  if (request.mode == Mode::front_poll && request.batch > request.shape.poll_capacity)
    base::bad_argument("batch", request.batch,
                       fmt::format("1 to the polling capacity, {}", request.shape.poll_capacity));
}

/// What a device or a kind has no room for at all; what does not fit beside the rest is fit_alone's to find.
void check_choice(const PlanRequest& request, const DeviceShape& device) {
  const KernelChoice& asked = request.choice;
  const auto check = [](const char* name, int value, bool is_accepted, const std::string& accepted) {
    if (value != KernelChoice::kOwn && !is_accepted) base::bad_argument(name, value, accepted);
  };
  const auto is_one_of = [](const auto& values, int value) {
    return std::find(values.begin(), values.end(), value) != values.end();
  };
  constexpr int kAfterPublication = 3;
  if (asked.trigger != KernelChoice::kOwnTrigger) {
    if (asked.trigger < 0 || asked.trigger >= static_cast<int>(kTriggerNames.size()))
      base::bad_argument("trigger", asked.trigger, fmt::format("0 to {}", kTriggerNames.size() - 1));
    if (request.kind == Kind::wave && asked.trigger == kAfterPublication)
      base::bad_argument(
          "trigger", kTriggerNames[kAfterPublication],
          "another place in publish and twoshot mode, whose tail publishes nothing before it polls");
  }
  if (request.launch_ranks > 1) {
    constexpr const char* kNone = "none in a launch of several ranks, which has its own geometry";
    for (const auto& [name, value] : {std::pair{"row_block", asked.row_block},
                                      {"tile", asked.tile},
                                      {"stages", asked.stages},
                                      {"warps", asked.warps}})
      check(name, value, false, kNone);
    return;
  }
  std::vector<int> row_blocks;
  for (int rows_each = 2; rows_each <= 8; rows_each *= 2)
    if (is_row_block(rows_each * device.max_cluster)) row_blocks.push_back(rows_each * device.max_cluster);
  check("row_block", asked.row_block, is_one_of(row_blocks, asked.row_block),
        fmt::format("{} on {}", fmt::join(row_blocks, ", "), device.arch));
  check("tile", asked.tile, is_one_of(kTiles, asked.tile), fmt::format("{}", fmt::join(kTiles, ", ")));
  check("warps", asked.warps, is_one_of(kWarpCounts, asked.warps),
        fmt::format("{}", fmt::join(kWarpCounts, ", ")));
  check("stages", asked.stages, asked.stages > 0, "1 or more");
}

}  // namespace

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::front: return "front";
    case Kind::wave: return "wave";
    case Kind::push: return "push";
    case Kind::publish: return "publish";
    case Kind::take: return "take";
    case Kind::fill: return "fill";
  }
  return "?";
}

DeviceShape device_shape(const std::string& arch) {
  constexpr std::size_t kKiB = 1024;
  if (arch == "sm_90a") return {arch, 132, 16, 7, 227 * kKiB, 228 * kKiB, kKiB};
  // Not run on yet: SM counts from data sheets, clusters by the same share of them as on the H200.
  if (arch == "sm_100a") return {arch, 148, 16, 7, 227 * kKiB, 228 * kKiB, kKiB};
  if (arch == "sm_103a") return {arch, 148, 16, 7, 227 * kKiB, 228 * kKiB, kKiB};
  if (arch == "sm_120a") return {arch, 188, 8, 20, 99 * kKiB, 100 * kKiB, kKiB};
  base::bad_argument("arch", arch, "sm_90a, sm_100a, sm_103a or sm_120a");
}

int batch_bucket(const Shape& shape, int batch) {
  for (const int bucket : kBuckets)
    if (batch <= bucket) return bucket;
  return shape.capacity;
}

KernelPlan make_plan(const PlanRequest& request, const DeviceShape& device) {
  check_request(request);
  check_choice(request, device);
  KernelPlan plan;
  plan.kind = request.kind;
  plan.entry = fmt::format("moetail_{}", kind_name(request.kind));
  plan.source = fmt::format("#include \"kernels/{}.cuh\"\n", kind_name(request.kind));
  const int bucket = batch_bucket(request.shape, request.batch);
  plan.max_batch = bucket;
  const bool is_loopback = request.launch_ranks > 1;
  plan.cooperative = is_loopback && is_tail(plan.kind);
  plan.dependent = !is_loopback;
  const Fit fit = is_loopback ? fit_loopback(request, device, bucket) : fit_alone(request, device, bucket);
  if (fit.blocks_per_sm == 0 && request.choice != KernelChoice{})
    base::fail(
        Code::unsupported,
        "{} at L = {} up to B = {} with {}: accepted is what fits {} bytes of shared memory a block of {}",
        plan.entry, request.shape.latent, bucket, choice_text(request.choice), device.shared_per_block,
        device.arch);
  if (fit.blocks_per_sm == 0)
    base::fail(Code::unsupported,
               "no geometry of {} for L = {}, {} ranks a launch, fits {} bytes of shared memory a block of "
               "{}: use a smaller "
               "latent size or fewer ranks a launch",
               plan.entry, request.shape.latent, request.launch_ranks, device.shared_per_block, device.arch);
  plan.geometry = fit.geometry;
  if (is_tail(plan.kind)) {
    plan.cluster = plan.geometry.slices;
    plan.grid = plan.cluster * plan.geometry.clusters * request.launch_ranks;
    plan.threads = threads_of(plan.geometry.warps);
    plan.shared_bytes = fit.shared.bytes;
    plan.blocks_per_sm = fit.blocks_per_sm;
  } else {
    plan.geometry.warps = kFewWarps;
    plan.blocks_per_sm = 2;
    plan.grid = plain_blocks(request, device, bucket);
    define(plan, "PLAIN_BLOCKS", plan.grid);
    plan.grid *= request.launch_ranks;
  }
  define_all(plan, request, is_tail(plan.kind) && bucket == request.batch && bucket <= 8);
  return plan;
}

std::string KernelPlan::text() const {
  return fmt::format(
      "{} up to B = {}: {} blocks of {} threads in clusters of {}, {} rows x {} stages x {} tokens, {} "
      "exchange{}, "
      "{} bytes shared, {} a SM{}",
      entry, max_batch, grid, threads, cluster, geometry.row_block, geometry.stages, geometry.tile,
      geometry.exchanges, geometry.exchanges > 1 ? "s" : "", shared_bytes, blocks_per_sm,
      cooperative ? ", cooperative" : "");
}

std::vector<PlanRequest> default_table(PutBy put) {
  std::vector<PlanRequest> table;
  const auto add = [&](Kind kind, Mode mode, int batch, Form form, bool shares) {
    PlanRequest request;
    request.kind = kind;
    request.mode = mode;
    request.batch = batch;
    request.form = form;
    request.put = put;
    request.shares_reduced = shares;
    request.polls_shared = mode == Mode::front_poll;
    table.push_back(request);
  };
  for (const int batch : kBuckets) {
    add(Kind::front, Mode::front, batch, Form::expanded, false);
    add(Kind::take, Mode::front, batch, Form::published, false);
    if (batch <= 16) {
      add(Kind::front, Mode::front_poll, batch, Form::published, false);
      add(Kind::fill, Mode::front_poll, batch, Form::expanded, false);
    }
    if (batch < 8) continue;
    for (const Mode mode : {Mode::publish, Mode::twoshot}) {
      // Rows that nobody pushed are one launch in two-shot mode, and what the experts' epilogue publishes in publish mode.
      add(mode == Mode::twoshot ? Kind::front : Kind::publish, mode, batch, Form::expanded, false);
      table.back().pushes = mode == Mode::twoshot;
      add(Kind::push, mode, batch, Form::published, false);
      add(Kind::wave, mode, batch, Form::published, mode == Mode::publish && batch >= 16);
      if (batch != 16) continue;
      add(Kind::wave, mode, batch, Form::published, mode == Mode::publish);
      table.back().early = true;
    }
  }
  return table;
}

}  // namespace moetail::kernels
