// SPDX-License-Identifier: Apache-2.0
// One decode step of a toy engine on four tensor-parallel ranks, through the C door: what decode_step.cpp does, for
// engines and bindings that speak C. docs/integration.md explains each call.
#include <moetail/moetail.h>
#include <stdio.h>
#include <string.h>

enum {
  kRanks = 4,
  kHidden = 256,
  kLatent = 128,
  kTopK = 4,
  kBatch = 2,
  kLayers = 4,
  kRoutes = kBatch * kTopK
};

// Every function of moetail that can fail returns a status; the reason stands in moetail_last_error().
#define MUST(call) \
  if ((call) != MOETAIL_OK) return fprintf(stderr, "%s: %s\n", #call, moetail_last_error()), 1

static float value_of(moetail_bf16 bits) {
  const uint32_t word = (uint32_t)bits << 16;
  float value = 0;
  return memcpy(&value, &word, sizeof value), value;
}

static moetail_bf16 bits_of(float value) {
  uint32_t word = 0;
  return memcpy(&word, &value, sizeof word), (moetail_bf16)(word >> 16);
}

static void fill(moetail_bf16* values, int count, float scale) {
  for (int i = 0; i < count; ++i) values[i] = bits_of(scale * (float)(i % 101 - 50));
}

static struct rank {
  _Alignas(16) moetail_bf16 hidden[kBatch * kHidden];  // [B, H], layer to layer
  _Alignas(16) moetail_bf16 rows[kRoutes * kLatent];   // the routed experts' rows
  _Alignas(16) moetail_bf16 shared[kBatch * kHidden];  // the shared experts' partial
  float weights[kRoutes];                              // the router's weights
  int number;
} ranks[kRanks];
static _Alignas(16) moetail_bf16 up_proj[kLayers][kHidden * kLatent], norm[kLatent];

// Stands for the engine's own kernels: whatever they compute, they leave it in `rows` and `shared`.
static void run_experts(void* context) {
  struct rank* rank = context;
  for (int i = 0; i < kRoutes * kLatent; ++i) {
    const int route = i / kLatent, token = route / kTopK, column = i % kLatent;
    rank->rows[i] =
        bits_of(value_of(rank->hidden[token * kHidden + column]) * (float)(route + rank->number + 1));
  }
  for (int i = 0; i < kBatch * kHidden; ++i) rank->shared[i] = bits_of(value_of(rank->hidden[i]) / 8);
}

int main(void) {
  fill(up_proj[0], kLayers * kHidden * kLatent, 0.002f);
  for (int i = 0; i < kLatent; ++i) norm[i] = bits_of(1.0f);
  for (int r = 0; r < kRanks; ++r) {
    fill(ranks[r].hidden, kBatch * kHidden, 0.02f);
    for (int i = 0; i < kRoutes; ++i) ranks[r].weights[i] = 0.25f;
    ranks[r].number = r;
  }

  // Once: the ranks, one set of mailboxes for all layers, and each layer's tail on each rank.
  moetail_shape shape = MOETAIL_SHAPE_INIT;
  shape.hidden = kHidden, shape.latent = kLatent, shape.ranks = kRanks, shape.top_k = kTopK,
  shape.capacity = 16;
  moetail_world* world = NULL;
  moetail_box* boxes[kRanks];
  moetail_stream* streams[kRanks];
  moetail_tail* tails[kLayers][kRanks];
  MUST(moetail_world_create_virtual(kRanks, NULL, &world));
  MUST(moetail_world_make_boxes(world, &shape, boxes, kRanks));
  for (int r = 0; r < kRanks; ++r) {
    MUST(moetail_world_main_stream(world, r, &streams[r]));
    for (int layer = 0; layer < kLayers; ++layer) {
      moetail_weights weights = MOETAIL_WEIGHTS_INIT;
      weights.up_proj = up_proj[layer], weights.up_proj_count = kHidden * kLatent;
      weights.norm = norm, weights.norm_count = kLatent;
      MUST(moetail_tail_create(boxes[r], &weights, layer + 1, &tails[layer][r]));
    }
  }

  // Each step: everything is enqueued on the ranks' streams, and only the end waits.
  for (int layer = 0; layer < kLayers; ++layer) {
    moetail_call calls[kRanks];
    moetail_out_view views[kRanks];
    for (int r = 0; r < kRanks; ++r) {
      struct rank* rank = &ranks[r];
      moetail_call call = MOETAIL_CALL_INIT;
      call.tail = tails[layer][r], call.batch = kBatch, call.form = MOETAIL_FORM_EXPANDED;
      call.rows = rank->rows, call.rows_count = kRoutes * kLatent;
      call.weights = rank->weights, call.weights_count = kRoutes, call.weight_type = MOETAIL_WEIGHTS_FP32;
      call.residual = rank->hidden, call.residual_count = kBatch * kHidden;
      calls[r] = call;
      views[r] = (moetail_out_view)MOETAIL_OUT_VIEW_INIT;
      MUST(moetail_stream_launch(streams[r], run_experts, rank));
      MUST(moetail_tail_push(call.tail, rank->shared, kBatch * kHidden, kBatch, MOETAIL_MODE_AUTO, NULL));
    }
    MUST(moetail_world_run(world, calls, views, kRanks));
    for (int r = 0; r < kRanks; ++r)
      MUST(moetail_box_take(boxes[r], &views[r], ranks[r].hidden, kBatch * kHidden, NULL));
  }
  MUST(moetail_world_synchronize(world));

  for (int r = 0; r < kRanks; ++r) {
    if (memcmp(ranks[r].hidden, ranks[0].hidden, sizeof ranks[0].hidden) != 0)
      return puts("the ranks disagree"), 1;
    for (int layer = 0; layer < kLayers; ++layer) MUST(moetail_tail_destroy(tails[layer][r]));
    MUST(moetail_box_destroy(boxes[r]));
  }
  MUST(moetail_world_destroy(world));
  printf("%d layers, %d ranks: hidden[0] = %g on every rank\n", kLayers, kRanks,
         (double)value_of(ranks[0].hidden[0]));
  return 0;
}
