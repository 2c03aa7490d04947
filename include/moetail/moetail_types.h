// SPDX-License-Identifier: Apache-2.0
// The types of the C door: handles, enumerations and versioned structs, each with its initial value. Include
// moetail/moetail.h, whose head states the rules that all of them follow.
#ifndef MOETAIL_MOETAIL_TYPES_H_
#define MOETAIL_MOETAIL_TYPES_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint16_t moetail_bf16;  ///< the bits of a bf16 number

typedef struct moetail_world moetail_world;      ///< the ranks of one tensor-parallel group
typedef struct moetail_box moetail_box;          ///< one rank's mailboxes, for all layers of a model
typedef struct moetail_tail moetail_tail;        ///< one layer's tail on one rank
typedef struct moetail_session moetail_session;  ///< where the processes of a group meet
typedef struct moetail_stream
    moetail_stream;  ///< work of one rank in order; owned by its world, not destroyed

/// What kind of thing went wrong. The values never change.
typedef enum moetail_status {
  MOETAIL_OK = 0,
  MOETAIL_INVALID_ARGUMENT = 1,  ///< an argument outside what is accepted
  MOETAIL_UNSUPPORTED = 2,       ///< right in itself, but not on this machine, engine or build
  MOETAIL_CALL_ORDER = 3,        ///< calls in an order the protocol forbids, or an outdated view
  MOETAIL_BUSY = 4,              ///< a box used from two threads or two main streams at once
  MOETAIL_FILE = 5,              ///< a file is missing, unreadable, truncated or ill-formed
  MOETAIL_FAULT = 6,             ///< a run-time fault: a peer died, stalled or disagreed (moetail_box_fault)
  MOETAIL_RESOURCE = 7,          ///< memory or another resource of the machine ran out
  MOETAIL_INTERNAL = 8           ///< a bug of moetail
} moetail_status;

enum moetail_engine { MOETAIL_ENGINE_AUTO = 0, MOETAIL_ENGINE_CPU = 1, MOETAIL_ENGINE_CUDA = 2 };

/// Which kernels serve a call; AUTO lets the policy choose by (ranks, batch).
enum moetail_mode {
  MOETAIL_MODE_AUTO = 0,
  MOETAIL_MODE_FRONT = 1,
  MOETAIL_MODE_FRONT_POLL = 2,
  MOETAIL_MODE_PUBLISH = 3,
  MOETAIL_MODE_TWOSHOT = 4
};

/// How the routed experts' result reaches the tail: B tokens, K routes a token, L columns.
enum moetail_form {
  MOETAIL_FORM_EXPANDED = 0,  ///< rows [B*K, L] and weights [B, K]: row b*K + k is route k of token b
  MOETAIL_FORM_PERMUTED = 1,  ///< rows [P, L], map [B, K] (negative: dropped route) and weights [B, K]
  MOETAIL_FORM_PARTIAL = 2,   ///< an already finalized partial [B, L]
  MOETAIL_FORM_PUBLISHED = 3  ///< the caller's own code delivers: moetail_publish_partial, moetail_fill_route
};

enum moetail_weight_type { MOETAIL_WEIGHTS_BF16 = 0, MOETAIL_WEIGHTS_FP32 = 1 };

enum moetail_fault_kind {
  MOETAIL_FAULT_NONE = 0,
  MOETAIL_FAULT_DEADLINE = 1,         ///< nobody served a wait in time
  MOETAIL_FAULT_POISONED = 2,         ///< rank `peer` faulted first
  MOETAIL_FAULT_ABORTED = 3,          ///< moetail_box_abort
  MOETAIL_FAULT_HEADER_MISMATCH = 4,  ///< ranks disagree about the call, in `field`
  MOETAIL_FAULT_MAP_INDEX = 5,        ///< map[token, k] = seen is not below P = expected
  MOETAIL_FAULT_NO_MEMORY = 6  ///< a launch of this rank got no memory; `site` is the last one that it passed
};

/// The field of a call in which two ranks disagree.
enum moetail_header_field {
  MOETAIL_FIELD_NONE = 0,
  MOETAIL_FIELD_BATCH = 1,
  MOETAIL_FIELD_MODE = 2,
  MOETAIL_FIELD_LAYER = 3,
  MOETAIL_FIELD_SHAPE = 4
};

// ---- Structs, all of version 1 ----

/// Sizes agreed by all ranks. The initial values are Kimi K3's at 8 ranks.
typedef struct moetail_shape {
  uint32_t size, version;
  int32_t hidden;         ///< H, columns of the output row: a multiple of 8 * ranks
  int32_t latent;         ///< L, columns of the latent row: a multiple of 8; of 8 * ranks in twoshot mode
  int32_t ranks;          ///< T, the tensor-parallel size: 1, 2, 4, 8 or 16
  int32_t top_k;          ///< K, routed experts of a token: 1 to 64
  int32_t capacity;       ///< the largest batch of a box
  int32_t poll_capacity;  ///< the largest batch of front_poll mode: 0 to capacity
  float eps;              ///< added to the mean square before the reciprocal root
} moetail_shape;
#define MOETAIL_SHAPE_INIT \
  { sizeof(moetail_shape), 1, 7168, 3584, 8, 16, 128, 16, 1e-5f }

typedef struct moetail_world_options {
  uint32_t size, version;
  int32_t engine;             ///< enum moetail_engine
  int32_t threads;            ///< CPU engine: threads that compute, over all ranks; 0: one a core
  int64_t deadline_ms;        ///< a wait longer than this is a fault; 0: none
  int64_t first_deadline_ms;  ///< the same for the first call of a box
  const char* policy_file;    ///< NULL: the built-in table
} moetail_world_options;
#define MOETAIL_WORLD_OPTIONS_INIT \
  { sizeof(moetail_world_options), 1, MOETAIL_ENGINE_AUTO, 0, 10000, 60000, NULL }

/// This process's place in a group whose ranks are processes.
typedef struct moetail_process_group {
  uint32_t size, version;
  int32_t rank, ranks;
  const char* token;  ///< moetail_session_token
  int64_t
      setup_deadline_ms;  ///< the longest that a rank waits for the others in each step of set-up and recovery; 1 at least
} moetail_process_group;
#define MOETAIL_PROCESS_GROUP_INIT \
  { sizeof(moetail_process_group), 1, 0, 1, NULL, 60000 }

typedef struct moetail_world_info {
  uint32_t size, version;
  int32_t ranks;
  int32_t local_ranks;  ///< how many of them live in this process
  int32_t engine;       ///< the one that serves this world
} moetail_world_info;
#define MOETAIL_WORLD_INFO_INIT \
  { sizeof(moetail_world_info), 1, 0, 0, 0 }

/// A layer's weights as one rank sees them. Views: the memory stays the caller's and must outlive the tail.
typedef struct moetail_weights {
  uint32_t size, version;
  const moetail_bf16* up_proj;  ///< the full weight [H, L], of which the box's rank takes its rows; or
  uint64_t up_proj_count;
  const moetail_bf16* shard;  ///< only those rows, [rank*H/T, (rank+1)*H/T): [H/T, L]
  uint64_t shard_count;
  const moetail_bf16* norm;  ///< gamma [L]
  uint64_t norm_count;
} moetail_weights;
#define MOETAIL_WEIGHTS_INIT \
  { sizeof(moetail_weights), 1, NULL, 0, NULL, 0, NULL, 0 }

/// One rank's call of one layer's tail. Buffers that the form does not use stay NULL with count 0.
typedef struct moetail_call {
  uint32_t size, version;
  moetail_tail* tail;
  moetail_stream* stream;    ///< NULL: the rank's main stream
  int32_t batch;             ///< B, the same on all ranks; 0 does nothing
  int32_t mode;              ///< enum moetail_mode
  int32_t form;              ///< enum moetail_form
  int32_t weight_type;       ///< enum moetail_weight_type, of `weights`
  const moetail_bf16* rows;  ///< expanded, permuted
  uint64_t rows_count;
  const int32_t* map;  ///< permuted
  uint64_t map_count;
  const void* weights;  ///< expanded, permuted: bf16 or fp32 by `weight_type`
  uint64_t weights_count;
  const moetail_bf16* partial;  ///< partial
  uint64_t partial_count;
  const moetail_bf16* shared;  ///< [B, H]; may be NULL where a push or the polled slots deliver it
  uint64_t shared_count;
  const moetail_bf16* residual;  ///< [B, H] or NULL; added in fp32 before the one rounding
  uint64_t residual_count;
} moetail_call;
#define MOETAIL_CALL_INIT \
  { sizeof(moetail_call), 1, NULL, NULL, 0, 0, 0, 0, NULL, 0, NULL, 0, NULL, 0, NULL, 0, NULL, 0, NULL, 0 }

/// The output rows of the latest call, where they lie in the mailbox. They may still be arriving: moetail_box_take and
/// moetail_consume_row wait for them. Only the latest call's view is accepted, once.
typedef struct moetail_out_view {
  uint32_t size, version;
  int32_t batch, hidden, rank, reserved;
  const moetail_bf16* data;  ///< [batch, hidden]
  uint64_t call;             ///< 1 for the first call of a box; 0: a call of batch 0, nothing to consume
  const void* box;           ///< identity of the box, for moetail's own check
} moetail_out_view;
#define MOETAIL_OUT_VIEW_INIT \
  { sizeof(moetail_out_view), 1, 0, 0, 0, 0, NULL, 0, NULL }

/// What the caller's expert code needs to publish partial rows. By value, valid as long as `tail` is.
typedef struct moetail_publish_targets {
  uint32_t size, version;
  moetail_tail* tail;
  int32_t batch;
  int32_t twoshot;  ///< 1 in twoshot mode
} moetail_publish_targets;
#define MOETAIL_PUBLISH_TARGETS_INIT \
  { sizeof(moetail_publish_targets), 1, NULL, 0, 0 }

/// What the caller's expert code needs to fill the polled slots. By value, valid as long as `tail` is.
typedef struct moetail_poll_slots {
  uint32_t size, version;
  moetail_tail* tail;
  int32_t batch;
  int32_t polled;  ///< 0: this call is a front call (batch above the polling capacity); nothing may be filled
} moetail_poll_slots;
#define MOETAIL_POLL_SLOTS_INIT \
  { sizeof(moetail_poll_slots), 1, NULL, 0, 0 }

/// What the caller's next step needs to consume the output rows itself. By value, valid as long as `box` is.
typedef struct moetail_out_consumer {
  uint32_t size, version;
  moetail_box* box;
  uint64_t call;
  int32_t batch, reserved;
} moetail_out_consumer;
#define MOETAIL_OUT_CONSUMER_INIT \
  { sizeof(moetail_out_consumer), 1, NULL, 0, 0, 0 }

/// The fault that a rank has seen. Fields that do not apply are -1.
typedef struct moetail_fault {
  uint32_t size, version;
  int32_t kind;   ///< enum moetail_fault_kind; MOETAIL_FAULT_NONE: the box is well
  int32_t site;   ///< where the rank waited: moetail_site_name
  int32_t field;  ///< enum moetail_header_field
  int32_t rank;   ///< who waited
  int32_t peer;   ///< whose data was missing or wrong
  int32_t layer;  ///< label of the layer, 0: none
  int32_t token, k, slot, reserved;
  uint64_t epoch, expected, seen, elapsed_ns;
  char text[256];  ///< the same in words
} moetail_fault;
#define MOETAIL_FAULT_INIT                                                     \
  {                                                                            \
    sizeof(moetail_fault), 1, 0, 0, 0, -1, -1, 0, -1, -1, -1, 0, 0, 0, 0, 0, { \
      0                                                                        \
    }                                                                          \
  }

typedef struct moetail_plan_request {
  uint32_t size, version;
  int32_t batch, mode, form, weight_type;
  int32_t residual;  ///< 1: the call has one
  int32_t threads;   ///< over all ranks; 0: one a core
  const char* policy_file;
} moetail_plan_request;
#define MOETAIL_PLAN_REQUEST_INIT \
  { sizeof(moetail_plan_request), 1, 1, 0, 0, 0, 0, 0, NULL }

/// What one call would run. Bytes and operations are those of all ranks together, each input counted once.
typedef struct moetail_plan {
  uint32_t size, version;
  int32_t mode;
  int32_t shares_reduced;       ///< 1: clusters of a rank share reduced rows
  int32_t clusters;             ///< CPU: threads a rank computes with
  int32_t columns_per_cluster;  ///< output columns of each
  int32_t slices;               ///< K slices of the up projection; part of the numeric contract
  int32_t policy_version;
  uint64_t weight_bytes, input_bytes, output_bytes, mailbox_bytes, flops;
} moetail_plan;
#define MOETAIL_PLAN_INIT \
  { sizeof(moetail_plan), 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // MOETAIL_MOETAIL_TYPES_H_
