// SPDX-License-Identifier: Apache-2.0
// Linux futex calls on a word that may lie in memory shared by processes; std::atomic::wait works in one
// process only.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

namespace moetail::base {

// The low half of a 64-bit counter: moetail runs on little-endian machines only.
inline std::uint32_t* futex_word(std::uint64_t* counter) {
  return reinterpret_cast<std::uint32_t*>(counter);
}

/// Sleeps while *word == expected, `limit` at most. May return for no reason.
inline void futex_wait(std::uint32_t* word, std::uint32_t expected, std::chrono::nanoseconds limit) {
  timespec timeout{};
  timeout.tv_sec = static_cast<time_t>(limit.count() / 1'000'000'000);
  timeout.tv_nsec = static_cast<long>(limit.count() % 1'000'000'000);
  syscall(SYS_futex, word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

inline void futex_wake_all(std::uint32_t* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace moetail::base
