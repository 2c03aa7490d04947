// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/planned.hpp"

#include "engine/cuda/info.hpp"

namespace moetail::cuda {
kernels::DeviceShape device_shape_of(const ContextRef& context) {
  const DeviceFacts& facts = context->facts();
  kernels::DeviceShape shape = kernels::device_shape(facts.arch());
  shape.num_sms = facts.num_sms;
  shape.shared_per_block = facts.shared_bytes_per_block;
  shape.shared_per_sm = facts.shared_bytes_per_sm;
  shape.shared_reserved = facts.reserved_shared_bytes_per_block;
  shape.resident_clusters = resident_clusters(context, static_cast<unsigned>(shape.max_cluster),
                                              static_cast<unsigned>(kernels::threads_of(kernels::kFewWarps)),
                                              facts.shared_bytes_per_block);
  return shape;
}

KernelRequest request_of(const kernels::KernelPlan& plan, const DeviceLimits& limits) {
  KernelRequest request;
  request.spec.entry = plan.entry;
  request.spec.source = plan.source;
  request.spec.defines = plan.defines;
  request.spec.arch = limits.arch;
  request.launch.grid = static_cast<unsigned>(plan.grid);
  request.launch.cluster = static_cast<unsigned>(plan.cluster);
  request.launch.threads = static_cast<unsigned>(plan.threads);
  request.launch.shared_bytes = plan.shared_bytes;
  request.launch.dependent = plan.dependent;
  request.launch.cooperative = plan.cooperative;
  if (plan.dependent && plan.blocks_per_sm > 1)
    request.budget.max_registers = registers_beside_successor(limits, plan.threads);
  // Blocks of a tail wait for each other across clusters; other launches only store, or wait for other launches.
  if (kernels::is_tail(plan.kind)) request.budget.min_resident_clusters = plan.grid / plan.cluster;
  return request;
}

}  // namespace moetail::cuda
