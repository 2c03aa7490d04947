// SPDX-License-Identifier: Apache-2.0
// A C program against the shared library: two ranks, every mode, a fault and its recovery. The numbers are chosen so
// that the whole tail is exact in bf16: x is 2 or -2 everywhere and eps is 0, so the norm is 1 or -1, and what is added
// to it are small integers.
#include <moetail/moetail.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kRanks = 2, kHidden = 48, kLatent = 32, kTopK = 2, kBatch = 3, kRoutes = kBatch * kTopK };

#define REQUIRE(condition)                                                                                  \
  do {                                                                                                      \
    if (!(condition)) {                                                                                     \
      fprintf(stderr, "line %d: %s: not so; last error: %s\n", __LINE__, #condition, moetail_last_error()); \
      exit(1);                                                                                              \
    }                                                                                                       \
  } while (0)
#define OK(call) REQUIRE((call) == MOETAIL_OK)

static moetail_bf16 bits_of(int value) {
  const float number = (float)value;
  uint32_t word = 0;
  memcpy(&word, &number, sizeof word);
  return (moetail_bf16)(word >> 16);
}

static int sign(int token, int column) {
  return (token * 7 + column * 5) % 3 == 0 ? -1 : 1;
}
static int weight(int row, int column) {
  return (row * 3 + column * 5) % 5 - 2;
}
static int shared(int rank, int token, int column) {
  return (rank * 2 + token + column) % 7 - 3;
}
static int residual(int token, int column) {
  return (token * 2 + column) % 9 - 4;
}

static _Alignas(16) moetail_bf16 up_proj[kHidden * kLatent], norm[kLatent];
static _Alignas(16) moetail_bf16 residual_rows[kBatch * kHidden], expected[kBatch * kHidden];

static struct rank {
  _Alignas(16) moetail_bf16 rows[kRoutes * kLatent];
  _Alignas(16) moetail_bf16 partial[kBatch * kLatent];
  _Alignas(16) moetail_bf16 shared[kBatch * kHidden];
  _Alignas(16) moetail_bf16 out[kBatch * kHidden];
  float weights[kRoutes];
  moetail_box* box;
  moetail_tail* tail;
  moetail_stream *main, *side;
  moetail_publish_targets targets;
  moetail_poll_slots slots;
  moetail_out_consumer consumer;
  int failures;  // of functions that ran on a stream
} ranks[kRanks];

static void make_data(void) {
  for (int i = 0; i < kHidden * kLatent; ++i) up_proj[i] = bits_of(weight(i / kLatent, i % kLatent));
  for (int i = 0; i < kLatent; ++i) norm[i] = bits_of(1);
  for (int i = 0; i < kBatch * kHidden; ++i) {
    const int token = i / kHidden, column = i % kHidden;
    int sum = residual(token, column);
    for (int c = 0; c < kLatent; ++c) sum += weight(column, c) * sign(token, c);
    for (int r = 0; r < kRanks; ++r) {
      sum += shared(r, token, column);
      ranks[r].shared[i] = bits_of(shared(r, token, column));
    }
    expected[i] = bits_of(sum);
    residual_rows[i] = bits_of(residual(token, column));
  }
  for (int r = 0; r < kRanks; ++r) {
    for (int i = 0; i < kRoutes * kLatent; ++i)
      ranks[r].rows[i] = bits_of(sign(i / kLatent / kTopK, i % kLatent));
    for (int i = 0; i < kBatch * kLatent; ++i) ranks[r].partial[i] = bits_of(sign(i / kLatent, i % kLatent));
    for (int i = 0; i < kRoutes; ++i) ranks[r].weights[i] = 0.5f;
  }
}

static void publish_rows(void* context) {
  struct rank* rank = context;
  for (int token = 0; token < kBatch; ++token)
    rank->failures += moetail_publish_partial(&rank->targets, token, rank->partial + token * kLatent,
                                              kLatent) != MOETAIL_OK;
}

static void fill_slots(void* context) {
  struct rank* rank = context;
  for (int token = 0; token < kBatch; ++token) {
    const moetail_bf16* row = rank->shared + token * kHidden;
    rank->failures += moetail_fill_shared(&rank->slots, token, row, kHidden) != MOETAIL_OK;
    // The first route alone has the whole weight: the second is dropped.
    row = rank->rows + token * kTopK * kLatent;
    rank->failures += moetail_fill_route(&rank->slots, token, 0, row, kLatent, 1.0f) != MOETAIL_OK;
    rank->failures += moetail_fill_dropped_route(&rank->slots, token, 1) != MOETAIL_OK;
  }
}

static void consume_rows(void* context) {
  struct rank* rank = context;
  for (int token = 0; token < kBatch; ++token)
    rank->failures +=
        moetail_consume_row(&rank->consumer, token, rank->out + token * kHidden, kHidden) != MOETAIL_OK;
}

// One call of all ranks, stream-ordered. The published form delivers through the functions above.
static void enqueue(moetail_world* world, int mode, int form, int consumes) {
  moetail_call calls[kRanks];
  moetail_out_view views[kRanks];
  for (int r = 0; r < kRanks; ++r) {
    struct rank* rank = &ranks[r];
    memset(rank->out, 0, sizeof rank->out);
    calls[r] = (moetail_call)MOETAIL_CALL_INIT;
    views[r] = (moetail_out_view)MOETAIL_OUT_VIEW_INIT;
    calls[r].tail = rank->tail;
    calls[r].batch = kBatch;
    calls[r].mode = mode;
    calls[r].form = form;
    calls[r].residual = residual_rows;
    calls[r].residual_count = kBatch * kHidden;
    const int polls = mode == MOETAIL_MODE_FRONT_POLL && form == MOETAIL_FORM_PUBLISHED;
    if (!polls) OK(moetail_tail_push(rank->tail, rank->shared, kBatch * kHidden, kBatch, mode, rank->side));
    if (form == MOETAIL_FORM_EXPANDED) {
      calls[r].rows = rank->rows;
      calls[r].rows_count = kRoutes * kLatent;
      calls[r].weights = rank->weights;
      calls[r].weights_count = kRoutes;
      calls[r].weight_type = MOETAIL_WEIGHTS_FP32;
    } else if (polls) {
      rank->slots = (moetail_poll_slots)MOETAIL_POLL_SLOTS_INIT;
      OK(moetail_tail_poll_slots(rank->tail, kBatch, mode, &rank->slots));
      REQUIRE(rank->slots.polled == 1);
      OK(moetail_stream_join(rank->side, rank->main));
      void* native = rank;
      OK(moetail_stream_native(rank->side, &native));
      REQUIRE(native == NULL);
      OK(moetail_stream_launch(rank->side, fill_slots, rank));
    } else {
      rank->targets = (moetail_publish_targets)MOETAIL_PUBLISH_TARGETS_INIT;
      OK(moetail_tail_publish(rank->tail, kBatch, mode, &rank->targets));
      OK(moetail_stream_launch(rank->main, publish_rows, rank));
    }
  }
  OK(moetail_world_run(world, calls, views, kRanks));
  for (int r = 0; r < kRanks; ++r) {
    struct rank* rank = &ranks[r];
    REQUIRE(views[r].batch == kBatch && views[r].hidden == kHidden && views[r].rank == r &&
            views[r].data != NULL);
    if (consumes) {
      rank->consumer = (moetail_out_consumer)MOETAIL_OUT_CONSUMER_INIT;
      OK(moetail_box_consumer(rank->box, &views[r], NULL, &rank->consumer));
      OK(moetail_stream_launch(rank->main, consume_rows, rank));
    } else {
      OK(moetail_box_take(rank->box, &views[r], rank->out, kBatch * kHidden, NULL));
    }
    REQUIRE(moetail_box_take(rank->box, &views[r], rank->out, kBatch * kHidden, NULL) == MOETAIL_CALL_ORDER);
  }
}

static void check(moetail_world* world, int mode, int form, int consumes) {
  enqueue(world, mode, form, consumes);
  OK(moetail_world_synchronize(world));
  for (int r = 0; r < kRanks; ++r) {
    REQUIRE(ranks[r].failures == 0);
    if (memcmp(ranks[r].out, expected, sizeof expected) == 0) continue;
    fprintf(stderr, "mode %s, form %d, rank %d: wrong output\n", moetail_mode_name(mode), form, r);
    exit(1);
  }
}

// Rank 1 never publishes, so both ranks wait until the host gives up; after a recovery the boxes work again.
static void fault_and_recover(moetail_world* world) {
  moetail_call calls[kRanks];
  moetail_out_view views[kRanks];
  for (int r = 0; r < kRanks; ++r) {
    calls[r] = (moetail_call)MOETAIL_CALL_INIT;
    views[r] = (moetail_out_view)MOETAIL_OUT_VIEW_INIT;
    calls[r].tail = ranks[r].tail;
    calls[r].batch = kBatch;
    calls[r].mode = MOETAIL_MODE_PUBLISH;
    calls[r].form = MOETAIL_FORM_PUBLISHED;
    OK(moetail_tail_push(ranks[r].tail, ranks[r].shared, kBatch * kHidden, kBatch, MOETAIL_MODE_PUBLISH,
                         NULL));
  }
  OK(moetail_tail_publish(ranks[0].tail, kBatch, MOETAIL_MODE_PUBLISH, &ranks[0].targets));
  OK(moetail_stream_launch(ranks[0].main, publish_rows, &ranks[0]));
  OK(moetail_world_run(world, calls, views, kRanks));
  OK(moetail_box_abort(ranks[0].box));
  REQUIRE(moetail_world_synchronize(world) == MOETAIL_FAULT);
  REQUIRE(strstr(moetail_last_error(), "aborted by the host") != NULL);

  moetail_fault fault = MOETAIL_FAULT_INIT;
  OK(moetail_box_fault(ranks[1].box, &fault));
  REQUIRE(fault.kind == MOETAIL_FAULT_POISONED && fault.rank == 1 && fault.peer == 0);
  OK(moetail_box_fault(ranks[0].box, &fault));
  REQUIRE(fault.kind == MOETAIL_FAULT_ABORTED && fault.rank == 0 && fault.layer == 5 &&
          fault.text[0] != '\0');
  moetail_call call = calls[0];
  REQUIRE(moetail_tail_push(call.tail, ranks[0].shared, kBatch * kHidden, kBatch, 0, NULL) == MOETAIL_FAULT);

  moetail_box* boxes[kRanks] = {ranks[0].box, ranks[1].box};
  OK(moetail_world_recover(world, boxes, kRanks));
  OK(moetail_box_fault(ranks[0].box, &fault));
  REQUIRE(fault.kind == MOETAIL_FAULT_NONE);
}

int main(void) {
  make_data();
  OK(moetail_supports(MOETAIL_ENGINE_CPU, NULL));
  REQUIRE(moetail_version()[0] != '\0' && strcmp(moetail_status_name(MOETAIL_BUSY), "busy") == 0);

  moetail_shape shape = MOETAIL_SHAPE_INIT;
  shape.hidden = kHidden;
  shape.latent = kLatent;
  shape.ranks = kRanks;
  shape.top_k = kTopK;
  shape.capacity = shape.poll_capacity = 4;
  shape.eps = 0;
  moetail_world* world = NULL;
  moetail_box* boxes[kRanks];
  OK(moetail_world_create_virtual(kRanks, NULL, &world));
  REQUIRE(moetail_world_make_boxes(world, &shape, boxes, 1) == MOETAIL_INVALID_ARGUMENT);
  OK(moetail_world_make_boxes(world, &shape, boxes, kRanks));
  moetail_weights weights = MOETAIL_WEIGHTS_INIT;
  weights.norm = norm;
  weights.norm_count = kLatent;
  for (int r = 0; r < kRanks; ++r) {
    struct rank* rank = &ranks[r];
    rank->box = boxes[r];
    OK(moetail_world_main_stream(world, r, &rank->main));
    OK(moetail_world_side_stream(world, r, &rank->side));
    weights.shard = up_proj + r * (kHidden / kRanks) * kLatent;
    weights.shard_count = kHidden / kRanks * kLatent;
    OK(moetail_tail_create(rank->box, &weights, 5, &rank->tail));
  }

  const int modes[] = {MOETAIL_MODE_FRONT, MOETAIL_MODE_PUBLISH, MOETAIL_MODE_TWOSHOT,
                       MOETAIL_MODE_FRONT_POLL};
  for (int i = 0; i < 4; ++i) {
    check(world, modes[i], MOETAIL_FORM_EXPANDED, i % 2);
    if (modes[i] != MOETAIL_MODE_FRONT) check(world, modes[i], MOETAIL_FORM_PUBLISHED, 1 - i % 2);
  }
  fault_and_recover(world);
  check(world, MOETAIL_MODE_AUTO, MOETAIL_FORM_EXPANDED, 0);

  moetail_tail* tail = ranks[0].tail;
  OK(moetail_world_destroy(world));
  REQUIRE(moetail_world_synchronize(world) == MOETAIL_INVALID_ARGUMENT);
  REQUIRE(moetail_world_destroy(world) == MOETAIL_INVALID_ARGUMENT);
  for (int r = 0; r < kRanks; ++r) {
    OK(moetail_box_destroy(ranks[r].box));
    OK(moetail_tail_destroy(ranks[r].tail));
  }
  REQUIRE(moetail_tail_destroy(tail) == MOETAIL_INVALID_ARGUMENT);
  OK(moetail_tail_destroy(NULL));
  puts("c_api_program: all as expected");
  return 0;
}
