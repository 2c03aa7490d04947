// SPDX-License-Identifier: Apache-2.0
// Thread block clusters: who am I, the split cluster barrier, shared memory of other blocks, dependent launch. One PTX
// instruction a wrapper.
#pragma once

#include "device/annotate.hpp"
#include "protocol/safeguards.hpp"

namespace moetail::device {

// mov.u32 from %cluster_ctarank, sm_90.
MOETAIL_DEVICE u32 block_in_cluster() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// barrier.cluster.arrive.release.aligned, sm_90. All threads of the block; paired with wait_cluster.
MOETAIL_DEVICE void arrive_cluster_release() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

// barrier.cluster.arrive.relaxed.aligned, sm_90. The same before anything was written that others must see, barriers apart, which
// have a fence of their own: the release would be a fence of the whole GPU in front of the weights' copies.
MOETAIL_DEVICE void arrive_cluster_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// barrier.cluster.wait.acquire.aligned, sm_90. Ends when every thread of the cluster has arrived or exited. It needs no
// deadline: between its arrive and its exit a block waits for the outside world only with one (device/wait.hpp).
MOETAIL_DEVICE void wait_cluster_acquire() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// mapa.shared::cluster.u32, sm_90. The same place in block `block` of the cluster.
MOETAIL_DEVICE u32 address_in_block(u32 address, u32 block) {
  u32 mapped;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(block));
  return mapped;
}

// st.async.shared::cluster.mbarrier::complete_tx::bytes.b32, sm_90. 4 bytes into another block, counted on its barrier.
MOETAIL_DEVICE void store_async(u32 to, u32 barrier, float a) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
               "r"(__float_as_uint(a)), "r"(barrier)
               : "memory");
}

// st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32, sm_90. 8 bytes.
MOETAIL_DEVICE void store_async(u32 to, u32 barrier, float a, float b) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(to),
               "r"(__float_as_uint(a)), "r"(__float_as_uint(b)), "r"(barrier)
               : "memory");
}

// st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32, sm_90. 16 bytes.
MOETAIL_DEVICE void store_async(u32 to, u32 barrier, float a, float b, float c, float d) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
      "r"(__float_as_uint(a)), "r"(__float_as_uint(b)), "r"(__float_as_uint(c)), "r"(__float_as_uint(d)),
      "r"(barrier)
      : "memory");
}

// griddepcontrol.wait, sm_90. Until the launch before this one in the stream is complete and its writes are visible; a launch
// without the dependent-launch attribute does not wait.
MOETAIL_DEVICE void wait_for_predecessor() {
  if constexpr (protocol::kWaitsForPredecessor) asm volatile("griddepcontrol.wait;" ::: "memory");
}

// griddepcontrol.launch_dependents, sm_90. The next launch may start once every block has said so or exited.
MOETAIL_DEVICE void trigger_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace moetail::device
