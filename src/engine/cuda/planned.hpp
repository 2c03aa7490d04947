// SPDX-License-Identifier: Apache-2.0
// From a plan (kernels/plan.hpp) to what is compiled, checked and launched; and from a device to what plans ask of it.
#pragma once

#include "engine/cuda/kernel_store.hpp"
#include "kernels/plan.hpp"

namespace moetail::cuda {

/// What plans ask of this device, the number of resident clusters by its own answer. Loads an empty kernel: not while a stream of this
/// thread is capturing.
kernels::DeviceShape device_shape_of(const ContextRef& context);

/// The plan's kernel for an architecture, with its geometry and budget: no spills; registers that leave a successor room where the
/// plan wants two blocks an SM; all clusters of a kernel that waits for its own blocks resident at once.
KernelRequest request_of(const kernels::KernelPlan& plan, const DeviceLimits& limits);

}  // namespace moetail::cuda
