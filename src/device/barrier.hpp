// SPDX-License-Identifier: Apache-2.0
// Barriers in shared memory that count bytes, and the bulk copies that fill shared memory behind them. One PTX instruction a
// wrapper; `barrier` and `to` are 32-bit shared addresses.
#pragma once

#include "device/annotate.hpp"

namespace moetail::device {

// mbarrier.init.shared.b64, sm_80. A phase takes `arrivals`: one is that of expect_bytes.
MOETAIL_DEVICE void init_barrier(u32 barrier, u32 arrivals = 1) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// fence.mbarrier_init.release.cluster, sm_90. The other blocks and the copy engine see the new barriers after the cluster
// barrier that follows.
MOETAIL_DEVICE void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// mbarrier.arrive.expect_tx.shared.b64, sm_90. Opens a phase that ends when `bytes` more bytes have landed.
MOETAIL_DEVICE void expect_bytes(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// mbarrier.arrive.shared.b64, sm_80 (release.cta by default). The last arrival ends a phase that waits for no bytes.
MOETAIL_DEVICE void arrive_barrier(u32 barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// mbarrier.try_wait.parity.shared.b64, sm_90 (acquire.cta by default). True once the phase of `parity` has ended; suspends the
// thread for a time the hardware chooses.
MOETAIL_DEVICE bool try_wait_barrier(u32 barrier, u32 parity) {
  u32 done;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done)
               : "r"(barrier), "r"(parity)
               : "memory");
  return done != 0;
}

/// Until the phase of `parity` has ended. Arrivals come from this block's warps, bytes from its own copies and from blocks of its cluster, all of
/// which deliver even after a fault (docs/kernels.md, "Fault exit"): so this wait ends whenever theirs do, and those have
/// deadlines.
MOETAIL_DEVICE void wait_barrier(u32 barrier, u32 parity) {
  while (!try_wait_barrier(barrier, parity)) {
  }
}

// createpolicy.fractional.L2::evict_first.b64, sm_80. For what a step reads once: it must not push out what the next kernels read.
MOETAIL_DEVICE u64 evict_first_policy() {
  u64 policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint, sm_90. `bytes` a multiple of 16, both ends
// 16-byte aligned. Of constants only before the dependency wait.
MOETAIL_DEVICE void copy_bulk_async(u32 to, const void* from, u32 bytes, u32 barrier, u64 policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
      "[%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

// cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes, sm_90. `bytes` a multiple of 16, both ends 16-byte
// aligned. Of constants only before the dependency wait.
MOETAIL_DEVICE void copy_bulk_async(u32 to, const void* from, u32 bytes, u32 barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

}  // namespace moetail::device
