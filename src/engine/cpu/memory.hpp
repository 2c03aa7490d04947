// SPDX-License-Identifier: Apache-2.0
// The memory policy of the CPU engine. Publications are release stores and polls are acquire loads; so everything a rank did
// before it published, its re-arm of the previous call included, happens before what a peer does with that publication.
// On the GPU the kernel boundary gives the same (docs/memory-model.md).
#pragma once

#include <atomic>

#include "protocol/sentinel.hpp"
#include "protocol/words.hpp"

// Lines move by one 16-byte access where the architecture orders ordinary loads and stores as acquire and release (x86), and
// by std::atomic_ref elsewhere and wherever a sanitizer has to see the access. The protocol needs single words only: it
// compares every one.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define MOETAIL_WIDE_LINES 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define MOETAIL_WIDE_LINES 0
#endif
#endif
#if !defined(MOETAIL_WIDE_LINES)
#if defined(__x86_64__)
#define MOETAIL_WIDE_LINES 1
#else
#define MOETAIL_WIDE_LINES 0
#endif
#endif

namespace moetail::cpu {

using protocol::Line;
using protocol::u32;
using protocol::u64;

class HostMemory {
 public:
#if MOETAIL_WIDE_LINES
  // The memory clobbers keep the compiler from moving any other access across, which makes these an acquire load and a
  // release store on x86, where the machine keeps that order by itself.
  Line load(const Line* from) const {
    Words words;
    asm volatile("movdqa %1, %0" : "=x"(words) : "m"(*from) : "memory");
    return __builtin_bit_cast(Line, words);
  }
  void store(Line* to, const Line& line) const {
    asm volatile("movdqa %1, %0" : "=m"(*to) : "x"(__builtin_bit_cast(Words, line)) : "memory");
  }
  void arm(Line* to) const {
    constexpr int kEmpty = -1;
    asm volatile("movdqa %1, %0" : "=m"(*to) : "x"(Words{kEmpty, kEmpty, kEmpty, kEmpty}));
  }
#else
  Line load(const Line* from) const {
    const u64 low = atomic(half(from, 0)).load(std::memory_order_acquire);
    const u64 high = atomic(half(from, 1)).load(std::memory_order_acquire);
    return Line{{static_cast<u32>(low), static_cast<u32>(low >> 32), static_cast<u32>(high),
                 static_cast<u32>(high >> 32)}};
  }
  void store(Line* to, const Line& line) const {
    atomic(half(to, 0)).store(pair(line.word[0], line.word[1]), std::memory_order_release);
    atomic(half(to, 1)).store(pair(line.word[2], line.word[3]), std::memory_order_release);
  }
  void arm(Line* to) const {
    constexpr u64 kEmptyPair = u64{protocol::kEmptyWord} << 32 | protocol::kEmptyWord;
    atomic(half(to, 0)).store(kEmptyPair, std::memory_order_relaxed);
    atomic(half(to, 1)).store(kEmptyPair, std::memory_order_relaxed);
  }
#endif

  u32 load(const u32* from) const {
    return atomic(const_cast<u32*>(from)).load(std::memory_order_acquire);
  }
  u64 load(const u64* from) const {
    return atomic(const_cast<u64*>(from)).load(std::memory_order_acquire);
  }
  void store(u32* to, u32 word) const {
    atomic(to).store(word, std::memory_order_release);
  }
  void store(u64* to, u64 word) const {
    atomic(to).store(word, std::memory_order_release);
  }
  void arm(u32* to) const {
    atomic(to).store(protocol::kEmptyWord, std::memory_order_relaxed);
  }
  u64 add(u64* to, u64 value) const {
    return atomic(to).fetch_add(value, std::memory_order_acq_rel);
  }

 private:
  template <class Word>
  static std::atomic_ref<Word> atomic(Word* word) {
    return std::atomic_ref<Word>(*word);
  }
#if MOETAIL_WIDE_LINES
  typedef int Words __attribute__((vector_size(16)));
#else
  // Two words an access: half as many accesses, and both words of a half are still compared.
  static u64* half(const Line* line, int index) {
    return reinterpret_cast<u64*>(const_cast<Line*>(line)) + index;
  }
  static u64 pair(u32 low, u32 high) {
    return static_cast<u64>(high) << 32 | low;
  }
#endif
};

}  // namespace moetail::cpu
