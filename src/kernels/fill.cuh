// SPDX-License-Identifier: Apache-2.0
// fill: plays the experts of front_poll mode: routed rows into G, weights into W, the shared partial into S.
#include "kernels/deliver.hpp"

using namespace moetail::kernels;
namespace device = moetail::device;

extern "C" __global__ void __launch_bounds__(kThreads) moetail_fill(const __grid_constant__ Args args) {
  __shared__ __align__(16) moetail::protocol::u8 words[block_words::kBytes];
  Tail tail = open_plain(args, device::shared_address(words));
  using namespace moetail::protocol;
  if (!use_control(tail, load_control(tail))) return;
  stall<Site::rows_fill>(tail.args, tail.block());
  const CallInputs& call = tail.args.call;
  const u32 first = static_cast<u32>(tail.cluster) * kThreads + threadIdx.x;
  constexpr u32 kStep = kPlainBlocks * kThreads;
  for (u32 i = first; i < static_cast<u32>(tail.batch * kHiddenLines); i += kStep)
    device::store_relaxed_sys(tail.view.mine<Line, Region::polled_shared>(tail.slot, 0, 0) + i,
                              cleaned(device::load_weak(reinterpret_cast<const Line*>(call.shared) + i)));
  for (u32 i = first; i < static_cast<u32>(tail.batch * kShape.top_k * kLatentLines); i += kStep) {
    const u32 route = i / kLatentLines, line = i % kLatentLines;
    const int token = static_cast<int>(route / kShape.top_k), k = static_cast<int>(route % kShape.top_k);
    int row = static_cast<int>(route);
    if (call.map != nullptr && kForm == moetail::Form::permuted)
      row = static_cast<int>(device::load_weak(reinterpret_cast<const u32*>(call.map) + route));
    if (row >= call.num_rows) {
      raise_map_fault(tail, token, k, row);
      continue;
    }
    // Who copies a row's first line says that the row is coming, and with what weight, or that it is not.
    if (line == 0) {
      Line raw{};
      load_weight(call, static_cast<i32>(route), 0, raw);
      const u32 weight = kWeightsAreFp32 ? raw.word[0] : raw.word[0] << 16;
      device::store_relaxed_sys(tail.view.mine<u32, Region::weights>(tail.slot, 0, token) + k,
                                row < 0 ? kDroppedRoute : weight_word(weight));
    }
    if (row < 0) continue;
    device::store_relaxed_sys(
        tail.view.mine<Line, Region::rows>(tail.slot, 0, 0) + i,
        cleaned(device::load_weak(
            reinterpret_cast<const Line*>(call.rows + static_cast<u64>(row) * kShape.latent) + line)));
  }
}
