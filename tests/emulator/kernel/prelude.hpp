// SPDX-License-Identifier: Apache-2.0
// What CUDA C++ has and C++ has not, as far as moetail's kernels and its tests' use it. Included before the text of every emulated kernel.
#pragma once

#include <cmath>
#include <cstring>
#include <utility>

#include "tests/emulator/machine.hpp"

// After the standard headers, which use some of these words as attributes.
#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __global__
#define __device__
#define __host__
#define __shared__
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline, unused))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define threadIdx (::moetail::emulator::here->thread)
#define blockIdx (::moetail::emulator::here->block)
#define blockDim (::moetail::emulator::here->block_dim)
#define gridDim (::moetail::emulator::here->grid_dim)

inline float __uint_as_float(unsigned bits) {
  return __builtin_bit_cast(float, bits);
}
inline unsigned __float_as_uint(float value) {
  return __builtin_bit_cast(unsigned, value);
}

namespace moetail::emulator {

// A GPU's arithmetic makes one NaN.
inline float canonical(float value) {
  return value == value ? value : __uint_as_float(0x7FFFFFFFu);
}

template <typename T>
T from_lane(T value, unsigned lane, const char* instruction) {
  static_assert(sizeof(T) == 4);
  Deposit mine{};
  std::memcpy(mine.word, &value, 4);
  const Deposit* all = exchange(mine, instruction);
  std::memcpy(&value, all[lane < 32 ? lane : here->lane].word, 4);
  return value;
}

template <typename Signature>
struct EntryOf;
template <typename... Parameters>
struct EntryOf<void(Parameters...)> {
  static constexpr unsigned kSizes[] = {sizeof(Parameters)..., 0};
  template <void (*kKernel)(Parameters...), unsigned... kIndex>
  static void run(void* const* parameters) {
    kKernel(*static_cast<const Parameters*>(parameters[kIndex])...);
  }
  template <void (*kKernel)(Parameters...), unsigned... kIndex>
  static constexpr Entry make(std::integer_sequence<unsigned, kIndex...>) {
    return {sizeof...(Parameters), kSizes, &run<kKernel, kIndex...>};
  }
  template <void (*kKernel)(Parameters...)>
  static constexpr Entry make() {
    return make<kKernel>(std::make_integer_sequence<unsigned, sizeof...(Parameters)>());
  }
};

}  // namespace moetail::emulator

/// The compiler writes one of these behind a kernel's text for each of its entries.
#define MOETAIL_EMULATED_ENTRY(name)                                    \
  extern "C" const ::moetail::emulator::Entry moetail_emulated_##name = \
      ::moetail::emulator::EntryOf<decltype(name)>::make<&name>();

inline float __fadd_rn(float a, float b) {
  return moetail::emulator::canonical(a + b);
}
inline float __fmul_rn(float a, float b) {
  return moetail::emulator::canonical(a * b);
}
inline float __fmaf_rn(float a, float b, float c) {
  return moetail::emulator::canonical(std::fma(a, b, c));
}
inline float rsqrtf(float value) {
  return moetail::emulator::canonical(1.0f / std::sqrt(value));
}
inline int __ffs(int bits) {
  return __builtin_ffs(bits);
}
inline void __syncthreads() {
  moetail::emulator::sync_block();
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return moetail::emulator::from_lane(value, moetail::emulator::here->lane ^ static_cast<unsigned>(mask),
                                      "shfl.xor");
}
template <typename T>
T __shfl_sync(unsigned, T value, int lane) {
  return moetail::emulator::from_lane(value, static_cast<unsigned>(lane), "shfl.idx");
}
template <typename T>
T __shfl_down_sync(unsigned, T value, unsigned step) {
  return moetail::emulator::from_lane(value, moetail::emulator::here->lane + step, "shfl.down");
}
inline void __syncwarp() {
  moetail::emulator::exchange({{0u}}, "bar.warp");
}
inline unsigned __ballot_sync(unsigned, bool vote) {
  const auto* all = moetail::emulator::exchange({{vote ? 1u : 0u}}, "vote.ballot");
  const unsigned live = moetail::emulator::live_lanes();
  unsigned votes = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    if ((live >> lane & 1) != 0 && all[lane].word[0] != 0) votes |= 1u << lane;
  return votes;
}
