// SPDX-License-Identifier: Apache-2.0
// Data is its own flag: a word that nobody has written yet holds the sentinel, and no publisher ever writes
// it.
#pragma once

#include "protocol/safeguards.hpp"
#include "protocol/words.hpp"

namespace moetail::protocol {

// Two bf16 NaNs of one pattern, or one fp32 NaN: memset(0xFF) arms a mailbox. No rounding of ours produces
// it, so only foreign data has to be cleaned, and -0 keeps its sign.
inline constexpr u32 kEmptyWord = 0xFFFFFFFFu;
inline constexpr u32 kCleanedWord = 0x7FFF7FFFu;

// In the polled weights W a NaN and a dropped route are words of their own, since both must differ from "not
// yet here".
inline constexpr u32 kNanWeight = 0x7FFFFFFFu;
inline constexpr u32 kDroppedRoute = 0x7FFFFFFEu;

/// A line of four times the same word: kEmptyWord arms, kCleanedWord is what a fault leaves.
MOETAIL_FN constexpr Line line_of(u32 word) {
  return Line{{word, word, word, word}};
}

MOETAIL_FN constexpr bool is_empty(u32 word) {
  return word == kEmptyWord;
}

/// True where any word of the line has not arrived. PTX gives a vector access no single moment: every word
/// counts.
MOETAIL_FN bool has_empty(const Line& line) {
  if constexpr (!kComparesEveryWord) return is_empty(line.word[0]);
#if defined(__SSE2__) && !defined(__CUDACC__)
  // The same four comparisons as one, for hosts whose polls are loops over lines.
  typedef int Words __attribute__((vector_size(16)));
  typedef long Halves __attribute__((vector_size(16)));
  const Words empty = __builtin_bit_cast(Words, line) == -1;
  const Halves halves = __builtin_bit_cast(Halves, empty);
  return (halves[0] | halves[1]) != 0;
#else
  return is_empty(line.word[0]) || is_empty(line.word[1]) || is_empty(line.word[2]) || is_empty(line.word[3]);
#endif
}

/// What a publisher writes for `word`: the word itself, or NaN, NaN where it happens to be the sentinel.
MOETAIL_FN constexpr u32 cleaned(u32 word) {
  return kCleansSentinel && word == kEmptyWord ? kCleanedWord : word;
}

MOETAIL_FN Line cleaned(const Line& line) {
  return Line{{cleaned(line.word[0]), cleaned(line.word[1]), cleaned(line.word[2]), cleaned(line.word[3])}};
}

/// The word of a polled weight: every NaN is one word, so that none can pass for a dropped route or for the
/// sentinel.
MOETAIL_FN u32 weight_word(u32 float_bits) {
  const bool is_nan = (float_bits & 0x7FFFFFFFu) > 0x7F800000u;
  return kCleansSentinel && is_nan ? kNanWeight : float_bits;
}

}  // namespace moetail::protocol
