// SPDX-License-Identifier: Apache-2.0
// The sentinel: exactly one word is changed on its way into a mailbox, and no published word can be taken for
// an absent one.
#include <gtest/gtest.h>

#include <cmath>

#include "protocol/numerics.hpp"
#include "protocol/sentinel.hpp"

namespace moetail::protocol {
namespace {

void check_word(u32 word) {
  if (word == 0xFFFFFFFFu)
    ASSERT_EQ(cleaned(word), 0x7FFF7FFFu);
  else
    ASSERT_EQ(cleaned(word), word);
}

// A weight that arrives is never "not yet here" nor "dropped", a NaN stays a NaN and every number keeps its
// bits.
void check_weight(u32 bits) {
  const u32 word = weight_word(bits);
  ASSERT_NE(word, kEmptyWord) << std::hex << bits;
  ASSERT_NE(word, kDroppedRoute) << std::hex << bits;
  if (std::isnan(float_from_bits(bits)))
    ASSERT_EQ(word, 0x7FFFFFFFu) << std::hex << bits;
  else
    ASSERT_EQ(word, bits) << std::hex << bits;
}

TEST(ProtocolSentinel, WordsAreTheOnesOfTheSpecification) {
  EXPECT_EQ(kEmptyWord, 0xFFFFFFFFu);
  EXPECT_EQ(kCleanedWord, 0x7FFF7FFFu);
  EXPECT_EQ(kNanWeight, 0x7FFFFFFFu);
  EXPECT_EQ(kDroppedRoute, 0x7FFFFFFEu);
  EXPECT_TRUE(is_empty(kEmptyWord));
  EXPECT_FALSE(is_empty(kCleanedWord));
}

TEST(ProtocolSentinel, OnlyTheSentinelIsCleaned) {
  // Every 211th word and all neighbours of the sentinel by one bit.
  for (u64 word = 0; word < (u64{1} << 32); word += 211) check_word(static_cast<u32>(word));
  for (int bit = 0; bit < 32; ++bit) check_word(kEmptyWord ^ (1u << bit));
  check_word(kEmptyWord);
}

TEST(ProtocolSentinel, EveryHalfBesideEveryInterestingHalf) {
  for (u32 half = 0; half <= 0xFFFFu; ++half) {
    for (u32 other : {0u, 0x7FFFu, 0x8000u, 0xFF80u, 0xFFFFu, half}) {
      check_word(half << 16 | other);
      check_word(other << 16 | half);
    }
  }
}

TEST(ProtocolSentinel, ZerosKeepTheirSign) {
  for (u32 word : {0x80000000u, 0x00008000u, 0x80008000u, 0u}) EXPECT_EQ(cleaned(word), word);
}

TEST(ProtocolSentinel, WeightsOfEveryKind) {
  for (u32 high = 0; high <= 0xFFFFu; ++high)
    for (u32 low : {0u, 1u, 0x7FFFu, 0x8000u, 0xFFFEu, 0xFFFFu}) check_weight(high << 16 | low);
  for (u64 bits = 0; bits < (u64{1} << 32); bits += 509) check_weight(static_cast<u32>(bits));
  // All NaNs whose bits are near the two words with a meaning of their own.
  for (u32 i = 0; i < 4096; ++i) {
    check_weight(0xFFFFFFFFu - i);
    check_weight(0x7FFFFFFFu - i);
    check_weight(0x7F800000u + i);
    check_weight(0xFF800000u + i);
  }
}

TEST(ProtocolSentinel, ALineIsThereWhenEveryWordIs) {
  EXPECT_FALSE(has_empty(Line{{1, 2, 3, 4}}));
  for (int missing = 1; missing < 16; ++missing) {
    Line line{{1, 2, 3, 4}};
    for (int word = 0; word < 4; ++word)
      if ((missing >> word & 1) != 0) line.word[word] = kEmptyWord;
    EXPECT_TRUE(has_empty(line)) << missing;
    const Line clean = cleaned(line);
    EXPECT_FALSE(has_empty(clean)) << missing;
    for (int word = 0; word < 4; ++word)
      EXPECT_EQ(clean.word[word], (missing >> word & 1) != 0 ? kCleanedWord : static_cast<u32>(word + 1));
  }
}

// Half a sentinel is data: it is the bf16 NaN 0xFFFF beside a number.
TEST(ProtocolSentinel, HalfASentinelIsData) {
  EXPECT_FALSE(has_empty(Line{{0xFFFF0000u, 0x0000FFFFu, 0xFFFF7FFFu, 0x7FFFFFFFu}}));
}

}  // namespace
}  // namespace moetail::protocol
