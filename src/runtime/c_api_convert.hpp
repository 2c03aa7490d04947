// SPDX-License-Identifier: Apache-2.0
// From the C door's structs to the C++ door's types.
#pragma once

#include "moetail/moetail.h"
#include "moetail/moetail.hpp"
#include "moetail/policy.hpp"
#include "runtime/c_api_guard.hpp"

namespace moetail::c_api {

// The layout of the structs is the ABI: on a 64-bit machine it never changes.
static_assert(sizeof(void*) != 8 || (sizeof(moetail_shape) == 36 && sizeof(moetail_world_options) == 40 &&
                                     sizeof(moetail_world_info) == 20 && sizeof(moetail_weights) == 56 &&
                                     sizeof(moetail_call) == 136 && sizeof(moetail_out_view) == 48 &&
                                     sizeof(moetail_publish_targets) == 24 &&
                                     sizeof(moetail_poll_slots) == 24 && sizeof(moetail_out_consumer) == 32 &&
                                     sizeof(moetail_fault) == 336 && sizeof(moetail_process_group) == 32 &&
                                     sizeof(moetail_plan_request) == 40 && sizeof(moetail_plan) == 72));

// So are the numbers.

static_assert(MOETAIL_OK == static_cast<int>(Code::ok) &&
              MOETAIL_INVALID_ARGUMENT == static_cast<int>(Code::invalid_argument) &&
              MOETAIL_UNSUPPORTED == static_cast<int>(Code::unsupported) &&
              MOETAIL_CALL_ORDER == static_cast<int>(Code::call_order) &&
              MOETAIL_BUSY == static_cast<int>(Code::busy) && MOETAIL_FILE == static_cast<int>(Code::file) &&
              MOETAIL_FAULT == static_cast<int>(Code::fault) &&
              MOETAIL_RESOURCE == static_cast<int>(Code::resource) &&
              MOETAIL_INTERNAL == static_cast<int>(Code::internal));
static_assert(MOETAIL_ENGINE_AUTO == static_cast<int>(Engine::automatic) &&
              MOETAIL_ENGINE_CUDA == static_cast<int>(Engine::cuda));
static_assert(MOETAIL_MODE_AUTO == static_cast<int>(Mode::automatic) &&
              MOETAIL_MODE_FRONT == static_cast<int>(Mode::front) &&
              MOETAIL_MODE_FRONT_POLL == static_cast<int>(Mode::front_poll) &&
              MOETAIL_MODE_PUBLISH == static_cast<int>(Mode::publish) &&
              MOETAIL_MODE_TWOSHOT == static_cast<int>(Mode::twoshot));
static_assert(MOETAIL_FORM_EXPANDED == static_cast<int>(Form::expanded) &&
              MOETAIL_FORM_PERMUTED == static_cast<int>(Form::permuted) &&
              MOETAIL_FORM_PARTIAL == static_cast<int>(Form::partial) &&
              MOETAIL_FORM_PUBLISHED == static_cast<int>(Form::published));
static_assert(MOETAIL_FAULT_NONE == static_cast<int>(protocol::FaultKind::none) &&
              MOETAIL_FAULT_DEADLINE == static_cast<int>(protocol::FaultKind::deadline) &&
              MOETAIL_FAULT_POISONED == static_cast<int>(protocol::FaultKind::poisoned) &&
              MOETAIL_FAULT_ABORTED == static_cast<int>(protocol::FaultKind::aborted) &&
              MOETAIL_FAULT_HEADER_MISMATCH == static_cast<int>(protocol::FaultKind::header_mismatch) &&
              MOETAIL_FAULT_MAP_INDEX == static_cast<int>(protocol::FaultKind::map_index) &&
              MOETAIL_FAULT_NO_MEMORY == static_cast<int>(protocol::FaultKind::no_memory));
static_assert(MOETAIL_FIELD_BATCH == static_cast<int>(protocol::HeaderField::batch) &&
              MOETAIL_FIELD_MODE == static_cast<int>(protocol::HeaderField::mode) &&
              MOETAIL_FIELD_LAYER == static_cast<int>(protocol::HeaderField::layer) &&
              MOETAIL_FIELD_SHAPE == static_cast<int>(protocol::HeaderField::shape));
static_assert(MOETAIL_WEIGHTS_BF16 == static_cast<int>(WeightType::bf16) &&
              MOETAIL_WEIGHTS_FP32 == static_cast<int>(WeightType::fp32));

inline Engine engine_of(std::int32_t engine) {
  return checked_enum<Engine>("engine", engine, MOETAIL_ENGINE_CUDA, "0 (auto), 1 (cpu) or 2 (cuda)");
}
inline Mode mode_of(std::int32_t mode) {
  return checked_enum<Mode>("mode", mode, MOETAIL_MODE_TWOSHOT,
                            "0 (auto), 1 (front), 2 (front_poll), 3 (publish) or 4 (twoshot)");
}
inline Form form_of(std::int32_t form) {
  return checked_enum<Form>("form", form, MOETAIL_FORM_PUBLISHED,
                            "0 (expanded), 1 (permuted), 2 (partial) or 3 (published)");
}
inline WeightType weight_type_of(std::int32_t type) {
  return checked_enum<WeightType>("weight_type", type, MOETAIL_WEIGHTS_FP32, "0 (bf16) or 1 (fp32)");
}

/// Null: the defaults. Throws Code::invalid_argument, and Code::unsupported for an engine that does not run here.
WorldOptions options_of(const moetail_world_options* given);

inline Shape shape_of(const moetail_shape* given) {
  const moetail_shape& shape = checked("shape", given);
  return {shape.hidden,   shape.latent,        shape.ranks, shape.top_k,
          shape.capacity, shape.poll_capacity, shape.eps};
}

}  // namespace moetail::c_api
