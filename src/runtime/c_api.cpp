// SPDX-License-Identifier: Apache-2.0
// The C door: what concerns the library as a whole. c_api_world.cpp holds worlds, streams and boxes, c_api_calls.cpp
// tails and what belongs to a call.
#include "runtime/c_api_convert.hpp"
#include "runtime/impl.hpp"

namespace c_api = moetail::c_api;

const char* moetail_version(void) noexcept {
  return MOETAIL_VERSION;
}

const char* moetail_status_name(int32_t status) noexcept {
  switch (status) {
    case MOETAIL_OK: return "ok";
    case MOETAIL_INVALID_ARGUMENT: return "invalid argument";
    case MOETAIL_UNSUPPORTED: return "unsupported";
    case MOETAIL_CALL_ORDER: return "call order";
    case MOETAIL_BUSY: return "busy";
    case MOETAIL_FILE: return "file";
    case MOETAIL_FAULT: return "fault";
    case MOETAIL_RESOURCE: return "resource";
    case MOETAIL_INTERNAL: return "internal";
    default: return "?";
  }
}

const char* moetail_mode_name(int32_t mode) noexcept {
  return moetail::protocol::mode_name(static_cast<moetail::Mode>(mode));
}

const char* moetail_site_name(int32_t site) noexcept {
  if (site < 0 || site >= moetail::protocol::kSites) return "?";
  return moetail::protocol::site_name(static_cast<moetail::protocol::Site>(site));
}

moetail_status moetail_supports(int32_t engine, const moetail_shape* shape) noexcept {
  return c_api::guarded([&] {
    moetail::runtime::check_engine(c_api::engine_of(engine));
    if (shape != nullptr) moetail::runtime::check_shape(c_api::shape_of(shape));
  });
}

moetail_status moetail_make_plan(const moetail_shape* shape, const moetail_plan_request* given,
                                 moetail_plan* result) noexcept {
  return c_api::guarded([&] {
    c_api::checked("request", given);
    c_api::checked("plan", result);
    moetail::PlanRequest request;
    request.shape = c_api::shape_of(shape);
    request.batch = given->batch;
    request.mode = c_api::mode_of(given->mode);
    request.form = c_api::form_of(given->form);
    request.weights = c_api::weight_type_of(given->weight_type);
    request.residual = given->residual != 0;
    request.threads = given->threads;
    const bool has_file = given->policy_file != nullptr;
    const auto policy = has_file ? moetail::Policy::load(given->policy_file) : moetail::Policy();
    const moetail::Plan plan = moetail::make_plan(request, policy);
    *result = {result->size,
               result->version,
               static_cast<int32_t>(plan.mode),
               plan.shares_reduced ? 1 : 0,
               plan.clusters,
               plan.columns_per_cluster,
               plan.slices,
               policy.version,
               plan.weight_bytes,
               plan.input_bytes,
               plan.output_bytes,
               plan.mailbox_bytes,
               plan.flops};
  });
}
