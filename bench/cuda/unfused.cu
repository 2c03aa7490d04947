// SPDX-License-Identifier: Apache-2.0
// What lies around the library's matrix product in an unfused tail of one rank without communication: finalize, RMSNorm, add. A launch
// each, compiled at run time as they stand here. UNFUSED_LATENT, _SHARD, _HIDDEN, _TOP_K, _EPS, _WEIGHTS_FP32 and _RESIDUAL are defined by
// unfused.cpp.
#include "device/global.hpp"
#include "device/pack.hpp"
#include "device/shared.hpp"
#include "protocol/numerics.hpp"

namespace device = moetail::device;
namespace protocol = moetail::protocol;
using device::Columns;
using protocol::Line;
using protocol::u16;
using protocol::u32;
using protocol::u64;
using protocol::u8;

constexpr u32 kLatentLines = UNFUSED_LATENT / 8, kShardLines = UNFUSED_SHARD / 8;
constexpr u32 kHiddenLines = UNFUSED_HIDDEN / 8;
constexpr int kTopK = UNFUSED_TOP_K;
constexpr int kGroups = 4;
constexpr int kRun = (kTopK + kGroups - 1) / kGroups;
constexpr u32 kNormThreads = 256, kNormWarps = kNormThreads / 32;
constexpr u32 kNormLines = (kLatentLines + kNormThreads - 1) / kNormThreads;

MOETAIL_DEVICE float route_weight(const void* weights, u32 route) {
  if constexpr (UNFUSED_WEIGHTS_FP32)
    return __uint_as_float(device::load_weak(static_cast<const u32*>(weights) + route));
  else
    return __uint_as_float(static_cast<u32>(device::load_weak(static_cast<const u16*>(weights) + route))
                           << 16);
}

// Four lanes a line of 8 columns, a quarter of the routes each, all loads in flight: as the library's own finalize, to compare with the
// best that a user may have.
extern "C" __global__ void __launch_bounds__(64)
    moetail_unfused_finalize(const u16* rows, const void* weights, u16* partial, u32 batch) {
  const u32 index = blockIdx.x * blockDim.x + threadIdx.x;
  const bool on = index / kGroups < batch * kLatentLines;
  const u32 place = on ? index / kGroups : 0, group = index % kGroups;
  const u32 token = place / kLatentLines, column = place % kLatentLines;
  const int first = protocol::finalize_group_begin(static_cast<int>(group), kTopK);
  const int count = protocol::finalize_group_begin(static_cast<int>(group) + 1, kTopK) - first;
  const u32 route = token * kTopK + static_cast<u32>(first);
  const Line* row = reinterpret_cast<const Line*>(rows) + static_cast<u64>(route) * kLatentLines + column;
  Line line[kRun];
  float weight[kRun];
#pragma unroll
  for (int k = 0; k < kRun; ++k) {
    line[k] = Line{};
    weight[k] = 0.0f;
    if (k >= count) continue;
    line[k] = device::load_weak(row + static_cast<u64>(k) * kLatentLines);
    weight[k] = route_weight(weights, route + static_cast<u32>(k));
  }
  Columns sum{};
#pragma unroll
  for (int k = 0; k < kRun; ++k) {
    const Columns c = device::columns_of(line[k]);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum.value[i] = __fmaf_rn(weight[k], c.value[i], sum.value[i]);
  }
#pragma unroll
  for (int step = kGroups / 2; step > 0; step /= 2)
#pragma unroll
    for (int i = 0; i < 8; ++i)
      sum.value[i] = __fadd_rn(sum.value[i], __shfl_xor_sync(~0u, sum.value[i], step));
  const Line all = device::pack_line(sum);
  const u32 word = group == 0   ? all.word[0]
                   : group == 1 ? all.word[1]
                   : group == 2 ? all.word[2]
                                : all.word[3];
  if (on) device::store_weak(reinterpret_cast<u32*>(partial) + place * 4 + group, word);
}

// A block a token.
extern "C" __global__ void __launch_bounds__(256)
    moetail_unfused_norm(const u16* partial, const u16* gamma, u16* operand) {
  extern __shared__ __align__(128) u8 shared[];
  const u32 sums = device::shared_address(shared), thread = threadIdx.x;
  const u64 row = static_cast<u64>(blockIdx.x) * kLatentLines;
  const Line* from = reinterpret_cast<const Line*>(partial) + row;
  const Line* scales = reinterpret_cast<const Line*>(gamma);
  Line line[kNormLines], scale[kNormLines];
  float square = 0.0f;
#pragma unroll
  for (u32 n = 0; n < kNormLines; ++n) {
    const u32 i = thread + n * kNormThreads;
    line[n] = scale[n] = Line{};
    if (i >= kLatentLines) continue;
    line[n] = device::load_weak(from + i);
    scale[n] = device::load_weak(scales + i);
  }
#pragma unroll
  for (u32 n = 0; n < kNormLines; ++n) {
    const Columns c = device::columns_of(line[n]);
#pragma unroll
    for (int i = 0; i < 8; ++i) square = __fmaf_rn(c.value[i], c.value[i], square);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) square = __fadd_rn(square, __shfl_xor_sync(~0u, square, step));
  if (thread % 32 == 0) device::store_shared(sums + thread / 32 * 4, square);
  __syncthreads();
  float all = 0.0f;
#pragma unroll
  for (u32 warp = 0; warp < kNormWarps; ++warp)
    all = __fadd_rn(all, device::load_shared_float(sums + warp * 4));
  const float rms = rsqrtf(__fmaf_rn(all, 1.0f / static_cast<float>(UNFUSED_LATENT), UNFUSED_EPS));
#pragma unroll
  for (u32 n = 0; n < kNormLines; ++n) {
    const u32 i = thread + n * kNormThreads;
    if (i >= kLatentLines) continue;
    Columns c = device::columns_of(line[n]);
    const Columns g = device::columns_of(scale[n]);
#pragma unroll
    for (int j = 0; j < 8; ++j) c.value[j] = __fmul_rn(__fmul_rn(c.value[j], rms), g.value[j]);
    device::store_weak(reinterpret_cast<Line*>(operand) + row + i, device::pack_line(c));
  }
}

// The first UNFUSED_SHARD columns of the shared partial and of the residual, which are rank 0's.
extern "C" __global__ void __launch_bounds__(128)
    moetail_unfused_add(const u16* product, const u16* added, const u16* residual, u16* out, u32 batch) {
  const u32 index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= batch * kShardLines) return;
  const u64 whole = static_cast<u64>(index / kShardLines) * kHiddenLines + index % kShardLines;
  Columns sum = device::columns_of(device::load_weak(reinterpret_cast<const Line*>(product) + index));
  device::add_line(sum, device::load_weak(reinterpret_cast<const Line*>(added) + whole));
  if constexpr (UNFUSED_RESIDUAL)
    device::add_line(sum, device::load_weak(reinterpret_cast<const Line*>(residual) + whole));
  device::store_weak(reinterpret_cast<Line*>(out) + index, device::pack_line(sum));
}
