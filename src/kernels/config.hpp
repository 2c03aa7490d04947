// SPDX-License-Identifier: Apache-2.0
// What a kernel is compiled for. The plan passes each value as a macro (kernels/plan.cpp, `defines`); the defaults are Kimi K3's
// on eight ranks, so that a kernel file can be compiled by itself.
#pragma once

#include "kernels/args.hpp"
#include "kernels/geometry.hpp"
#include "protocol/header.hpp"
#include "protocol/layout.hpp"
#include "protocol/mode.hpp"
#include "protocol/ring.hpp"

#ifndef MOETAIL_HIDDEN
#define MOETAIL_HIDDEN 7168
#define MOETAIL_LATENT 3584
#define MOETAIL_RANKS 8
#define MOETAIL_TOP_K 16
#define MOETAIL_CAPACITY 128
#define MOETAIL_POLL_CAPACITY 16
#define MOETAIL_EPS 1e-5f
#define MOETAIL_SHAPE_HASH 0
#endif
#ifndef MOETAIL_BATCH
#define MOETAIL_BATCH 1
#define MOETAIL_EXACT_BATCH 1
#endif
#ifndef MOETAIL_SLICES
#define MOETAIL_SLICES 16
#define MOETAIL_CLUSTERS 7
#define MOETAIL_ROW_BLOCK 128
#define MOETAIL_TILE 1
#define MOETAIL_STAGES 1
#define MOETAIL_WARPS 8
#define MOETAIL_EXCHANGES 1
#endif
#ifndef MOETAIL_LAUNCH_RANKS
#define MOETAIL_LAUNCH_RANKS 1
#endif
#ifndef MOETAIL_MODE
#define MOETAIL_MODE 1
#endif
#ifndef MOETAIL_FORM
#define MOETAIL_FORM 0
#endif
#ifndef MOETAIL_WEIGHTS_FP32
#define MOETAIL_WEIGHTS_FP32 0
#endif
#ifndef MOETAIL_RESIDUAL
#define MOETAIL_RESIDUAL 0
#endif
#ifndef MOETAIL_SHARES
#define MOETAIL_SHARES 0
#endif
#ifndef MOETAIL_POLLS_SHARED
#define MOETAIL_POLLS_SHARED 0
#endif
#ifndef MOETAIL_PUT
#define MOETAIL_PUT 0
#endif
#ifndef MOETAIL_TRIGGER
#define MOETAIL_TRIGGER 1
#endif
#ifndef MOETAIL_PUBLISHES
#define MOETAIL_PUBLISHES 1
#endif
#ifndef MOETAIL_PUSHES
#define MOETAIL_PUSHES 1
#endif
#ifndef MOETAIL_EARLY
#define MOETAIL_EARLY 0
#endif
#ifndef MOETAIL_PLAIN_BLOCKS
#define MOETAIL_PLAIN_BLOCKS 1
#endif
#ifndef MOETAIL_MIN_BLOCKS
#define MOETAIL_MIN_BLOCKS 1
#endif

namespace moetail::kernels {

/// How what every rank gets whole leaves: a store to each rank, one to the multicast address, or (replay, where a multicast put
/// costs one store on the wire) one to the own box.
enum class Put : int { peers = 0, multicast = 1, own = 2 };

/// When the next launch may start. Its weights then compete with what this one still has to load: at entry cost 0.6 us at B = 1, after
/// the product 1 us (H200, 2026-11-29).
enum class Trigger : int {
  at_entry = 0,
  after_poll = 1,
  none = 2,
  after_publish = 3,
  after_errands = 4,
  after_product = 5,
  after_wait = 6
};

inline constexpr Shape kShape{MOETAIL_HIDDEN,   MOETAIL_LATENT,        MOETAIL_RANKS, MOETAIL_TOP_K,
                              MOETAIL_CAPACITY, MOETAIL_POLL_CAPACITY, MOETAIL_EPS};
inline constexpr i32 kRanks = kShape.ranks;
inline constexpr Geometry kGeometry{MOETAIL_SLICES, MOETAIL_CLUSTERS, MOETAIL_ROW_BLOCK, MOETAIL_TILE,
                                    MOETAIL_STAGES, MOETAIL_WARPS,    MOETAIL_EXCHANGES};
inline constexpr Cut kCut = make_cut(kShape, kGeometry);
inline constexpr SharedLayout kShared = make_shared_layout(kShape, kCut, kGeometry);

inline constexpr i32 kRowGroups = kGeometry.row_block / 16;  ///< m16 tiles of a row block
inline constexpr i32 kComputeWarps = kGeometry.warps;
inline constexpr i32 kSideWarp = kComputeWarps;
inline constexpr i32 kThreads = threads_of(kComputeWarps);

inline constexpr i32 kMaxBatch = MOETAIL_BATCH;  ///< the largest batch this kernel serves
inline constexpr bool kExactBatch = MOETAIL_EXACT_BATCH != 0;
inline constexpr i32 kLaunchRanks = MOETAIL_LAUNCH_RANKS;
inline constexpr bool kLoopback = kLaunchRanks > 1;
inline constexpr i32 kMinBlocks =
    MOETAIL_MIN_BLOCKS;  ///< blocks an SM must be able to hold: this one and its successor's

inline constexpr Mode kMode = static_cast<Mode>(MOETAIL_MODE);
inline constexpr Form kForm = static_cast<Form>(MOETAIL_FORM);
inline constexpr bool kWeightsAreFp32 = MOETAIL_WEIGHTS_FP32 != 0;
inline constexpr bool kHasResidual = MOETAIL_RESIDUAL != 0;
inline constexpr bool kShares =
    MOETAIL_SHARES != 0;  ///< clusters hand each other summed rows through `reduced`
/// Each summed row is one block's work, which hands it to the others through `reduced` or `gather`.
inline constexpr bool kSumsOnce = kShares || kMode == Mode::twoshot;
inline constexpr bool kPollsSlots = kMode == Mode::front_poll && kForm == Form::published;
inline constexpr bool kPollsShared = MOETAIL_POLLS_SHARED != 0;
inline constexpr bool kPublishes =
    MOETAIL_PUBLISHES != 0;  ///< tails: it makes and publishes the rank's partial itself
/// It sends the shared shards and the header too.
inline constexpr bool kPushes = MOETAIL_PUSHES != 0;
inline constexpr bool kStartsEarly =
    MOETAIL_EARLY != 0;  ///< wave: it polls before its predecessor is complete
inline constexpr i32 kPlainBlocks = MOETAIL_PLAIN_BLOCKS;  ///< of one rank, in kernels without clusters
inline constexpr Put kPut = static_cast<Put>(MOETAIL_PUT);
inline constexpr Trigger kTrigger = static_cast<Trigger>(MOETAIL_TRIGGER);

inline constexpr u32 kShapeHash = MOETAIL_SHAPE_HASH;
inline constexpr i32 kLatentLines = kShape.latent / protocol::kLineColumns;
inline constexpr i32 kHiddenLines = kShape.hidden / protocol::kLineColumns;
inline constexpr i32 kShardLines = kShape.shard() / protocol::kLineColumns;
inline constexpr bool kSlicesAreEqual = kLatentLines % kGeometry.slices == 0;
inline constexpr i32 kBlocks = kGeometry.slices * kGeometry.clusters;  ///< of one rank

using Args = LaunchArgs<kLaunchRanks>;

static_assert(protocol::first_broken_rule(kShape) == protocol::ShapeRule::ok,
              "the shape breaks a rule of protocol/shape.hpp");
static_assert(kGeometry.row_block % 16 == 0, "a row block is a whole number of m16 tiles");
static_assert(kCut.owner_rows >= 2 && kCut.owner_rows <= 8 && 8 % kCut.owner_rows == 0,
              "an owner finishes 2, 4 or 8 rows: row_block must be 2, 4 or 8 times slices");
static_assert(kGeometry.tile % 16 == 0 || (kGeometry.tile <= 8 && 8 % kGeometry.tile == 0),
              "a tile is 1, 2, 4, 8 or a multiple of 16 tokens");

}  // namespace moetail::kernels
