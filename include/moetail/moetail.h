// SPDX-License-Identifier: Apache-2.0
// The C door of moetail (C11, and C++): what bindings need, and nothing else. docs/integration.md walks through one
// decode step; include/moetail/moetail.hpp, the C++ door, states what each call means in full.
//
//  - Status: every function that can fail returns a moetail_status. Anything but MOETAIL_OK means that nothing is
//    enqueued, no state has changed and handles to be returned are NULL (functions that wait have waited). Then
//    moetail_last_error(), called by the same thread, names the argument, its value and what is accepted. No exception
//    leaves this library.
//  - Structs begin with `size` and `version`, also those that a function fills. Start from the struct's ..._INIT, or set
//    size = sizeof the struct, version = 1 and every other field. A later library still accepts today's version.
//  - Handles are opaque. Each is released by its ..._destroy, in any order: a tail keeps its box alive, a box its world.
//    The destroy that ends a box or a world waits until its streams are idle. NULL may be destroyed.
//    Released handles and handles of another kind are refused, until the memory serves a new handle of the same kind; a
//    pointer that never was a handle of this library is undefined behaviour, as is a destroy beside another use.
//  - Enumerations cross the door as int32_t, so that a wrong number is an error like any other.
//  - Buffers are a pointer and a count of elements; longer than needed is fine, shorter never. Routed rows, partials,
//    shared partials, residuals, weights of a layer and destinations start 16-byte aligned. They must stay valid and
//    unchanged until the stream has passed the call.
//  - Threads: a box, and the tails on it, are used by one thread at a time (MOETAIL_BUSY); moetail_box_fault and
//    moetail_box_abort may be called by any thread at any time.
#ifndef MOETAIL_MOETAIL_H_
#define MOETAIL_MOETAIL_H_

#include <stdint.h>

#include "moetail/moetail_types.h"

#if defined(__GNUC__)
#define MOETAIL_API __attribute__((visibility("default")))
#else
#define MOETAIL_API
#endif
#ifdef __cplusplus
#define MOETAIL_NOEXCEPT noexcept
extern "C" {
#else
#define MOETAIL_NOEXCEPT
#endif

// ---- The library ----

MOETAIL_API const char* moetail_version(void) MOETAIL_NOEXCEPT;
/// Why the last failed call of this thread failed; "" before the first. Valid until the thread's next failure.
MOETAIL_API const char* moetail_last_error(void) MOETAIL_NOEXCEPT;
/// Names of values; "?" for a number that is none.
MOETAIL_API const char* moetail_status_name(int32_t status) MOETAIL_NOEXCEPT;
MOETAIL_API const char* moetail_mode_name(int32_t mode) MOETAIL_NOEXCEPT;
MOETAIL_API const char* moetail_site_name(int32_t site) MOETAIL_NOEXCEPT;

/// MOETAIL_OK when `engine` runs here and serves `shape` (NULL: asked about the engine alone); else the status, with the
/// reason in moetail_last_error. Cheap, starts nothing, and no other rank takes part.
MOETAIL_API moetail_status moetail_supports(int32_t engine, const moetail_shape* shape) MOETAIL_NOEXCEPT;

/// What a call of `request` at `shape` would run and what it costs; runs nothing.
MOETAIL_API moetail_status moetail_make_plan(const moetail_shape* shape, const moetail_plan_request* request,
                                             moetail_plan* plan) MOETAIL_NOEXCEPT;

// ---- Session: where ranks that are processes meet ----

/// Made by whoever starts `ranks` processes; to be kept until moetail_world_create_process has returned in all of them.
MOETAIL_API moetail_status moetail_session_create(int32_t ranks, moetail_session** session) MOETAIL_NOEXCEPT;
MOETAIL_API moetail_status moetail_session_destroy(moetail_session* session) MOETAIL_NOEXCEPT;
/// What each rank needs to join, to be handed over in private. Valid as long as the session.
MOETAIL_API moetail_status moetail_session_token(moetail_session* session,
                                                 const char** token) MOETAIL_NOEXCEPT;
/// Ends the ranks' waits for each other in set-up and recovery, with MOETAIL_FAULT and `reason`.
MOETAIL_API moetail_status moetail_session_cancel(moetail_session* session,
                                                  const char* reason) MOETAIL_NOEXCEPT;

// ---- World, and its streams ----

/// `ranks` ranks in this process: threads over ordinary memory on the CPU engine. `options` may be NULL.
MOETAIL_API moetail_status moetail_world_create_virtual(int32_t ranks, const moetail_world_options* options,
                                                        moetail_world** world) MOETAIL_NOEXCEPT;
/// One rank, alone.
MOETAIL_API moetail_status moetail_world_create_single(const moetail_world_options* options,
                                                       moetail_world** world) MOETAIL_NOEXCEPT;
/// One rank of a group whose others are processes of this user on this machine; CPU engine only. Collective, as are
/// moetail_world_make_boxes and moetail_world_recover then: what fails on one rank is every rank's error and names it.
MOETAIL_API moetail_status moetail_world_create_process(const moetail_process_group* group,
                                                        const moetail_world_options* options,
                                                        moetail_world** world) MOETAIL_NOEXCEPT;
MOETAIL_API moetail_status moetail_world_destroy(moetail_world* world) MOETAIL_NOEXCEPT;
MOETAIL_API moetail_status moetail_world_get_info(moetail_world* world,
                                                  moetail_world_info* info) MOETAIL_NOEXCEPT;

/// One armed box for each local rank, in rank order: `num_boxes` must be their number. Collective.
MOETAIL_API moetail_status moetail_world_make_boxes(moetail_world* world, const moetail_shape* shape,
                                                    moetail_box** boxes, uint64_t num_boxes) MOETAIL_NOEXCEPT;
/// One call of each local rank, and a view of each one's output; `num_calls` must be their number. Stream-ordered:
/// returns when the work is enqueued.
MOETAIL_API moetail_status moetail_world_run(moetail_world* world, const moetail_call* calls,
                                             moetail_out_view* views, uint64_t num_calls) MOETAIL_NOEXCEPT;
/// Waits for all streams of all local ranks. MOETAIL_FAULT, with the first fault of any box, if there is one.
MOETAIL_API moetail_status moetail_world_synchronize(moetail_world* world) MOETAIL_NOEXCEPT;
/// Waits until the streams are idle, re-arms all boxes that one moetail_world_make_boxes returned and forgets their
/// faults and open calls.
MOETAIL_API moetail_status moetail_world_recover(moetail_world* world, moetail_box* const* boxes,
                                                 uint64_t num_boxes) MOETAIL_NOEXCEPT;

/// A rank's two streams. They live as long as the world or any box or tail of it.
MOETAIL_API moetail_status moetail_world_main_stream(moetail_world* world, int32_t rank,
                                                     moetail_stream** stream) MOETAIL_NOEXCEPT;
MOETAIL_API moetail_status moetail_world_side_stream(moetail_world* world, int32_t rank,
                                                     moetail_stream** stream) MOETAIL_NOEXCEPT;
/// Calls work(context) on the stream's thread, after everything enqueued before: the place of the caller's producers and
/// consumers. `work` may publish, fill, consume and launch; what waits or destroys is refused there (MOETAIL_CALL_ORDER).
MOETAIL_API moetail_status moetail_stream_launch(moetail_stream* stream, void (*work)(void*),
                                                 void* context) MOETAIL_NOEXCEPT;
/// Returns when everything enqueued so far has run.
MOETAIL_API moetail_status moetail_stream_synchronize(moetail_stream* stream) MOETAIL_NOEXCEPT;
/// What comes next on `stream` waits, the caller does not, for everything enqueued on `other` so far.
MOETAIL_API moetail_status moetail_stream_join(moetail_stream* stream,
                                               moetail_stream* other) MOETAIL_NOEXCEPT;
/// The CUDA engine's own stream, a cudaStream_t, where the caller's kernels and captures go; NULL on the CPU engine.
MOETAIL_API moetail_status moetail_stream_native(moetail_stream* stream, void** native) MOETAIL_NOEXCEPT;

// ---- Box ----

MOETAIL_API moetail_status moetail_box_destroy(moetail_box* box) MOETAIL_NOEXCEPT;
MOETAIL_API moetail_status moetail_box_rank(moetail_box* box, int32_t* rank) MOETAIL_NOEXCEPT;
MOETAIL_API moetail_status moetail_box_shape(moetail_box* box, moetail_shape* shape) MOETAIL_NOEXCEPT;
/// Bytes of the mailboxes.
MOETAIL_API moetail_status moetail_box_bytes(moetail_box* box, uint64_t* bytes) MOETAIL_NOEXCEPT;
/// Copies the rows of `view` to `destination` ([B, H]) and re-arms them; NaN rows on a faulted box.
MOETAIL_API moetail_status moetail_box_take(moetail_box* box, const moetail_out_view* view,
                                            moetail_bf16* destination, uint64_t destination_count,
                                            moetail_stream* stream) MOETAIL_NOEXCEPT;
/// Instead of a take: the caller's own code, next on this stream, consumes each row of `view` once.
MOETAIL_API moetail_status moetail_box_consumer(moetail_box* box, const moetail_out_view* view,
                                                moetail_stream* stream,
                                                moetail_out_consumer* consumer) MOETAIL_NOEXCEPT;
/// The fault this rank has seen, or MOETAIL_FAULT_NONE. The status is MOETAIL_OK in both cases.
MOETAIL_API moetail_status moetail_box_fault(moetail_box* box, moetail_fault* fault) MOETAIL_NOEXCEPT;
/// Ends the waits of a running call of this rank; the box is poisoned until moetail_world_recover.
MOETAIL_API moetail_status moetail_box_abort(moetail_box* box) MOETAIL_NOEXCEPT;

// ---- Tail ----

/// `layer` labels faults and is compared between ranks in every call; 0 is not compared.
MOETAIL_API moetail_status moetail_tail_create(moetail_box* box, const moetail_weights* weights,
                                               int32_t layer, moetail_tail** tail) MOETAIL_NOEXCEPT;
/// Not between a push, publish or poll_slots of a call and its run.
MOETAIL_API moetail_status moetail_tail_destroy(moetail_tail* tail) MOETAIL_NOEXCEPT;
/// Sends the shared experts' partial [B, H] on its way: required in publish mode, and in twoshot mode where the caller publishes; harmless
/// elsewhere. A twoshot run that is given rows does it itself where nobody has.
/// `stream`: NULL, the rank's main stream, or its side stream, which is forked here and joined by the run.
MOETAIL_API moetail_status moetail_tail_push(moetail_tail* tail, const moetail_bf16* shared,
                                             uint64_t shared_count, int32_t batch, int32_t mode,
                                             moetail_stream* stream) MOETAIL_NOEXCEPT;
/// Publish and twoshot mode: destinations for the caller's own rows of this call.
MOETAIL_API moetail_status moetail_tail_publish(moetail_tail* tail, int32_t batch, int32_t mode,
                                                moetail_publish_targets* targets) MOETAIL_NOEXCEPT;
/// front_poll mode: slots for the caller's own routes of this call.
MOETAIL_API moetail_status moetail_tail_poll_slots(moetail_tail* tail, int32_t batch, int32_t mode,
                                                   moetail_poll_slots* slots) MOETAIL_NOEXCEPT;

// ---- For work on a stream (moetail_stream_launch) ----

/// Publishes this rank's finalized partial row of `token` ([L]). Every token of the batch once.
MOETAIL_API moetail_status moetail_publish_partial(const moetail_publish_targets* targets, int32_t token,
                                                   const moetail_bf16* row,
                                                   uint64_t row_count) MOETAIL_NOEXCEPT;
/// Delivers route `k` of `token`: its row ([L]) and its weight.
MOETAIL_API moetail_status moetail_fill_route(const moetail_poll_slots* slots, int32_t token, int32_t k,
                                              const moetail_bf16* row, uint64_t row_count,
                                              float weight) MOETAIL_NOEXCEPT;
/// Marks route `k` of `token` as dropped: it is skipped, and its row is not waited for.
MOETAIL_API moetail_status moetail_fill_dropped_route(const moetail_poll_slots* slots, int32_t token,
                                                      int32_t k) MOETAIL_NOEXCEPT;
/// Delivers this rank's shared experts' partial row of `token` ([H]).
MOETAIL_API moetail_status moetail_fill_shared(const moetail_poll_slots* slots, int32_t token,
                                               const moetail_bf16* row, uint64_t row_count) MOETAIL_NOEXCEPT;
/// Waits for the output row of `token`, copies it to `row` ([H]) and re-arms it. Every row of the batch once, before the
/// next call of the box starts. MOETAIL_FAULT, with NaN in `row`, on a faulted box.
MOETAIL_API moetail_status moetail_consume_row(const moetail_out_consumer* consumer, int32_t token,
                                               moetail_bf16* row, uint64_t row_count) MOETAIL_NOEXCEPT;

// ---- For kernels of the caller's on a GPU (moetail/device/*.cuh) ----

/// What a kernel takes by value as moetail::PublishTargets, moetail::PollSlots or moetail::OutConsumer, as bytes at `argument`. `size`: how
/// many there are room for, which becomes the struct's size; with `argument` NULL only that.
MOETAIL_API moetail_status moetail_publish_argument(const moetail_publish_targets* targets, void* argument,
                                                    uint64_t* size) MOETAIL_NOEXCEPT;
MOETAIL_API moetail_status moetail_poll_argument(const moetail_poll_slots* slots, void* argument,
                                                 uint64_t* size) MOETAIL_NOEXCEPT;
MOETAIL_API moetail_status moetail_consumer_argument(const moetail_out_consumer* consumer, void* argument,
                                                     uint64_t* size) MOETAIL_NOEXCEPT;
/// The headers that such kernels include, for a compiler that is given them in memory: header `index`, from 0 on, its name and text, which
/// stay valid. Past the last one both become NULL.
MOETAIL_API moetail_status moetail_device_header(uint64_t index, const char** name,
                                                 const char** text) MOETAIL_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // MOETAIL_MOETAIL_H_
