// SPDX-License-Identifier: Apache-2.0
// This block's shared memory by 32-bit address, one PTX instruction a wrapper. Not by pointer: in a cluster the compiler then works out the
// block's window anew at every use.
#pragma once

#include "device/annotate.hpp"

namespace moetail::device {

/// The 32-bit address of an object in this block's shared memory. Volatile, so that it is worked out once.
MOETAIL_DEVICE u32 shared_address(const volatile void* object) {
  u32 address;
  asm volatile("{ .reg .u64 wide; cvta.to.shared.u64 wide, %1; cvt.u32.u64 %0, wide; }"
               : "=r"(address)
               : "l"(object));
  return address;
}

// ld.shared.u32, sm_70.
MOETAIL_DEVICE u32 load_shared(u32 from) {
  u32 word;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
  return word;
}
MOETAIL_DEVICE float load_shared_float(u32 from) {
  return __uint_as_float(load_shared(from));
}

// ld.shared.v4.u32, sm_70. 16-byte aligned.
MOETAIL_DEVICE Line load_shared_line(u32 from) {
  Line line;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(line.word[0]), "=r"(line.word[1]), "=r"(line.word[2]), "=r"(line.word[3])
               : "r"(from)
               : "memory");
  return line;
}

// st.shared.u32, sm_70.
MOETAIL_DEVICE void store_shared(u32 to, u32 word) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}
MOETAIL_DEVICE void store_shared(u32 to, float value) {
  store_shared(to, __float_as_uint(value));
}

// st.shared.u64, sm_70. 8-byte aligned.
MOETAIL_DEVICE void store_shared(u32 to, u64 value) {
  asm volatile("st.shared.u64 [%0], %1;" ::"r"(to), "l"(value) : "memory");
}

// ld.shared.u64, sm_70. 8-byte aligned.
MOETAIL_DEVICE u64 load_shared_pair(u32 from) {
  u64 value;
  asm volatile("ld.shared.u64 %0, [%1];" : "=l"(value) : "r"(from) : "memory");
  return value;
}

// st.shared.v4.u32, sm_70. 16-byte aligned.
MOETAIL_DEVICE void store_shared(u32 to, const Line& line) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(line.word[0]), "r"(line.word[1]),
               "r"(line.word[2]), "r"(line.word[3])
               : "memory");
}

}  // namespace moetail::device
