// SPDX-License-Identifier: Apache-2.0
// src/device/global.hpp, emulated. The words of a line come and go one by one, and in any order.
#pragma once

#include "device/annotate.hpp"

namespace moetail::device {

template <typename T>
MOETAIL_DEVICE T load_word(const T* from) {
  return __atomic_load_n(from, __ATOMIC_RELAXED);
}
template <typename T>
MOETAIL_DEVICE void store_word(T* to, T word) {
  __atomic_store_n(to, word, __ATOMIC_RELAXED);
}
MOETAIL_DEVICE void check_line(const void* at) {
  if (reinterpret_cast<u64>(at) % 16 != 0) emulator::fail("a line that is not 16-byte aligned");
}

MOETAIL_DEVICE Line load_weak(const Line* from) {
  check_line(from);
  Line line;
  for (int i = 0; i < 4; ++i) line.word[i] = load_word(&from->word[i]);
  return line;
}
MOETAIL_DEVICE u32 load_weak(const u32* from) {
  return load_word(from);
}
MOETAIL_DEVICE u64 load_weak(const u64* from) {
  return load_word(from);
}
MOETAIL_DEVICE u16 load_weak(const u16* from) {
  return load_word(from);
}

MOETAIL_DEVICE Line load_relaxed_sys(const Line* from) {
  emulator::pause();
  check_line(from);
  Line line;
  for (int i = 0; i < 4; ++i) {
    line.word[i] = load_word(&from->word[i]);
    emulator::pause_at_random();
  }
  return line;
}
MOETAIL_DEVICE u32 load_relaxed_sys(const u32* from) {
  emulator::pause();
  return load_word(from);
}
MOETAIL_DEVICE u64 load_relaxed_sys(const u64* from) {
  emulator::pause();
  return load_word(from);
}

struct Pair {
  u64 first, second;
};
MOETAIL_DEVICE Pair load_pair_relaxed_sys(const u64* from) {
  const u64 second = load_relaxed_sys(from + 1);
  return {load_relaxed_sys(from), second};
}

MOETAIL_DEVICE void store_relaxed_sys(Line* to, const Line& line) {
  check_line(to);
  for (int i = 3; i >= 0; --i) {
    store_word(&to->word[i], line.word[i]);
    emulator::pause_at_random();
  }
}
MOETAIL_DEVICE void store_relaxed_sys(u32* to, u32 word) {
  store_word(to, word);
  emulator::pause_at_random();
}
MOETAIL_DEVICE void store_relaxed_sys(u64* to, u64 word) {
  store_word(to, word);
  emulator::pause_at_random();
}
MOETAIL_DEVICE void store_release_sys(u32* to, u32 word) {
  __atomic_store_n(to, word, __ATOMIC_RELEASE);
}
MOETAIL_DEVICE void store_weak(Line* to, const Line& line) {
  store_relaxed_sys(to, line);
}
MOETAIL_DEVICE void store_weak(u32* to, u32 word) {
  store_relaxed_sys(to, word);
}
MOETAIL_DEVICE void store_multicast_relaxed_sys(Line*, const Line&) {
  emulator::fail("multimem.st: the emulated GPU has no multicast");
}
MOETAIL_DEVICE void store_multicast_relaxed_sys(u32*, u32) {
  emulator::fail("multimem.st: the emulated GPU has no multicast");
}
MOETAIL_DEVICE u64 add_relaxed_gpu(u64* to, u64 value) {
  return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}
MOETAIL_DEVICE u64 compare_swap_acq_rel_sys(u64* to, u64 expected, u64 desired) {
  __atomic_compare_exchange_n(to, &expected, desired, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  return expected;
}
MOETAIL_DEVICE u64 global_time_ns() {
  emulator::pause();
  return emulator::time_ns();
}

}  // namespace moetail::device
