// SPDX-License-Identifier: Apache-2.0
// Global memory, one PTX instruction a wrapper. Order and scope are in the name; "weak" is an ordinary access, for data that a
// kernel boundary or the dependency wait has already made visible. All are volatile with a memory clobber: a weak load must not
// climb over the dependency wait either.
#pragma once

#include "device/annotate.hpp"

namespace moetail::device {

// ld.global.v4.u32, sm_70. Inputs: read once, through L2.
MOETAIL_DEVICE Line load_weak(const Line* from) {
  Line line;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(line.word[0]), "=r"(line.word[1]), "=r"(line.word[2]), "=r"(line.word[3])
               : "l"(from)
               : "memory");
  return line;
}

// ld.global.u32, sm_70.
MOETAIL_DEVICE u32 load_weak(const u32* from) {
  u32 word;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
  return word;
}

// ld.global.u64, sm_70.
MOETAIL_DEVICE u64 load_weak(const u64* from) {
  u64 word;
  asm volatile("ld.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
  return word;
}

// ld.global.u16, sm_70.
MOETAIL_DEVICE u16 load_weak(const u16* from) {
  u16 half;
  asm volatile("ld.global.u16 %0, [%1];" : "=h"(half) : "l"(from) : "memory");
  return half;
}

// ld.relaxed.sys.global.v4.u32, sm_70. PTX promises no single moment for the four words: pollers compare every one.
MOETAIL_DEVICE Line load_relaxed_sys(const Line* from) {
  Line line;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(line.word[0]), "=r"(line.word[1]), "=r"(line.word[2]), "=r"(line.word[3])
               : "l"(from)
               : "memory");
  return line;
}

// ld.relaxed.sys.global.u32, sm_70.
MOETAIL_DEVICE u32 load_relaxed_sys(const u32* from) {
  u32 word;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
  return word;
}

// ld.relaxed.sys.global.u64, sm_70.
MOETAIL_DEVICE u64 load_relaxed_sys(const u64* from) {
  u64 word;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
  return word;
}

/// Two 64-bit words side by side, 16-byte aligned.
struct Pair {
  u64 first, second;
};

// ld.relaxed.sys.global.v2.u64, sm_70. Two accesses in no order.
MOETAIL_DEVICE Pair load_pair_relaxed_sys(const u64* from) {
  Pair pair;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(pair.first), "=l"(pair.second)
               : "l"(from)
               : "memory");
  return pair;
}

// st.relaxed.sys.global.v4.u32, sm_70. A publication of 16 bytes.
MOETAIL_DEVICE void store_relaxed_sys(Line* to, const Line& line) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(line.word[0]),
               "r"(line.word[1]), "r"(line.word[2]), "r"(line.word[3])
               : "memory");
}

// st.relaxed.sys.global.u32, sm_70.
MOETAIL_DEVICE void store_relaxed_sys(u32* to, u32 word) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
}

// st.relaxed.sys.global.u64, sm_70.
MOETAIL_DEVICE void store_relaxed_sys(u64* to, u64 word) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}

// st.release.sys.global.u32, sm_70. Cold: the state word of a fault record, after the record.
MOETAIL_DEVICE void store_release_sys(u32* to, u32 word) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
}

// st.global.v4.u32, sm_70. Re-arm and copies for a later kernel: nobody waits for it inside this launch.
MOETAIL_DEVICE void store_weak(Line* to, const Line& line) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(line.word[0]), "r"(line.word[1]),
               "r"(line.word[2]), "r"(line.word[3])
               : "memory");
}

// st.global.u32, sm_70.
MOETAIL_DEVICE void store_weak(u32* to, u32 word) {
  asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
}

// multimem.st.relaxed.sys.global.v4.f32, sm_90. On a multicast address only: every rank's copy gets the line. The type is a
// formality, bits travel as they are.
MOETAIL_DEVICE void store_multicast_relaxed_sys(Line* to, const Line& line) {
  asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to),
               "f"(__uint_as_float(line.word[0])), "f"(__uint_as_float(line.word[1])),
               "f"(__uint_as_float(line.word[2])), "f"(__uint_as_float(line.word[3]))
               : "memory");
}

// multimem.st.relaxed.sys.global.b32, sm_90.
MOETAIL_DEVICE void store_multicast_relaxed_sys(u32* to, u32 word) {
  asm volatile("multimem.st.relaxed.sys.global.b32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
}

// atom.relaxed.gpu.global.add.u64, sm_70. Arrival counters, where what comes before needs no order: see arrive_at_end.
MOETAIL_DEVICE u64 add_relaxed_gpu(u64* to, u64 value) {
  u64 old;
  asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(to), "l"(value) : "memory");
  return old;
}

// atom.acq_rel.sys.global.cas.b64, sm_70. Cold: first fault wins.
MOETAIL_DEVICE u64 compare_swap_acq_rel_sys(u64* to, u64 expected, u64 desired) {
  u64 old;
  asm volatile("atom.acq_rel.sys.global.cas.b64 %0, [%1], %2, %3;"
               : "=l"(old)
               : "l"(to), "l"(expected), "l"(desired)
               : "memory");
  return old;
}

// mov.u64 from %globaltimer, sm_30. Nanoseconds; it ticks coarsely (about a microsecond on Hopper).
MOETAIL_DEVICE u64 global_time_ns() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  return now;
}

}  // namespace moetail::device
