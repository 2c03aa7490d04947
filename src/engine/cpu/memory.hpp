// SPDX-License-Identifier: Apache-2.0
// The memory policy of the CPU engine: std::atomic_ref accesses. Publications are release stores and polls
// are acquire loads; so everything a rank did before it published, its re-arm of the previous call included,
// happens before what a peer does with that publication. On the GPU the kernel boundary gives the same
// (docs/memory-model.md).
#pragma once

#include <atomic>

#include "protocol/sentinel.hpp"
#include "protocol/words.hpp"

namespace moetail::cpu {

using protocol::Line;
using protocol::u32;
using protocol::u64;

class HostMemory {
 public:
  Line load(const Line* from) const {
    const u64 low = atomic(half(from, 0)).load(std::memory_order_acquire);
    const u64 high = atomic(half(from, 1)).load(std::memory_order_acquire);
    return Line{{static_cast<u32>(low), static_cast<u32>(low >> 32), static_cast<u32>(high),
                 static_cast<u32>(high >> 32)}};
  }
  u32 load(const u32* from) const { return atomic(const_cast<u32*>(from)).load(std::memory_order_acquire); }
  u64 load(const u64* from) const { return atomic(const_cast<u64*>(from)).load(std::memory_order_acquire); }

  void store(Line* to, const Line& line) const {
    atomic(half(to, 0)).store(pair(line.word[0], line.word[1]), std::memory_order_release);
    atomic(half(to, 1)).store(pair(line.word[2], line.word[3]), std::memory_order_release);
  }
  void store(u32* to, u32 word) const { atomic(to).store(word, std::memory_order_release); }
  void store(u64* to, u64 word) const { atomic(to).store(word, std::memory_order_release); }

  void arm(Line* to) const {
    constexpr u64 kEmptyPair = u64{protocol::kEmptyWord} << 32 | protocol::kEmptyWord;
    atomic(half(to, 0)).store(kEmptyPair, std::memory_order_relaxed);
    atomic(half(to, 1)).store(kEmptyPair, std::memory_order_relaxed);
  }
  void arm(u32* to) const { atomic(to).store(protocol::kEmptyWord, std::memory_order_relaxed); }

  u64 add(u64* to, u64 value) const { return atomic(to).fetch_add(value, std::memory_order_acq_rel); }

 private:
  template <class Word>
  static std::atomic_ref<Word> atomic(Word* word) {
    return std::atomic_ref<Word>(*word);
  }
  // Two words an access: halves the number of accesses, and both words of a half are still compared.
  static u64* half(const Line* line, int index) {
    return reinterpret_cast<u64*>(const_cast<Line*>(line)) + index;
  }
  static u64 pair(u32 low, u32 high) { return static_cast<u64>(high) << 32 | low; }
};

}  // namespace moetail::cpu
