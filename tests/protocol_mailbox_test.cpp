// SPDX-License-Identifier: Apache-2.0
// The mailbox verbs on plain memory, one at a time: what is stored where, what a torn line does, how a wait
// ends.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/plain_box.hpp"

namespace moetail::protocol {
namespace {

using moetail::testing::PlainGroup;
using moetail::testing::PlainMemory;

constexpr unsigned char kArmed = 0xFF;

Shape mailbox_shape(int ranks) {
  Shape shape;
  shape.ranks = ranks;
  shape.hidden = 24 * ranks;
  shape.latent = 32 * ranks;
  shape.top_k = 3;
  shape.capacity = 4;
  shape.poll_capacity = 4;
  return shape;
}

std::vector<Line> numbered_lines(int count, u32 first = 1) {
  std::vector<Line> lines(static_cast<std::size_t>(count));
  for (auto& line : lines)
    for (u32& word : line.word) word = first++;
  return lines;
}

bool same(const Line& a, const Line& b) {
  return std::memcmp(&a, &b, sizeof(Line)) == 0;
}

TEST(ProtocolMailbox, APublishedRunStandsInEveryPeersMailboxAndNowhereElse) {
  constexpr int kRanks = 4, kSlot = 1, kSource = 2, kRow = 3, kFirst = 5;
  PlainGroup group(mailbox_shape(kRanks), kArmed);
  PlainMemory memory;
  const auto lines = numbered_lines(4);
  put_run(memory, group.view(kSource), Region::latent, kSlot, kSource, kRow, kFirst, lines.data(), 4);
  for (int rank = 0; rank < kRanks; ++rank) {
    auto expected = std::vector<unsigned char>(group.layout().total_bytes, kArmed);
    std::memcpy(
        expected.data() + group.layout().at(Region::latent, kSlot, kSource, kRow) + kFirst * sizeof(Line),
        lines.data(), 4 * sizeof(Line));
    EXPECT_EQ(group.bytes(rank), expected) << rank;
  }
}

TEST(ProtocolMailbox, ACommonCopyIsWrittenOnce) {
  PlainGroup group(mailbox_shape(4), kArmed, true);
  PlainMemory memory;
  const auto lines = numbered_lines(4);
  put_run(memory, group.view(2), Region::latent, 1, 2, 3, 5, lines.data(), 4);
  put_run(memory, group.view(1), Region::gather, 0, 0, 2, 4, lines.data(), 4);
  const std::vector<unsigned char> armed(group.layout().total_bytes, kArmed);
  auto expected = armed;
  std::memcpy(expected.data() + group.layout().at(Region::latent, 1, 2, 3) + 5 * sizeof(Line), lines.data(),
              4 * sizeof(Line));
  std::memcpy(expected.data() + group.layout().at(Region::gather, 0, 0, 2) + 4 * sizeof(Line), lines.data(),
              4 * sizeof(Line));
  EXPECT_EQ(group.common_bytes(), expected);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(group.bytes(rank), armed);
    // Every rank reads it there.
    EXPECT_TRUE(same(*(group.view(rank).mine<Line>(Region::latent, 1, 2, 3) + 5), lines[0]));
  }
  put_run(memory, group.view(2), Region::out, 0, 0, 1, 0, lines.data(), 2);
  EXPECT_EQ(group.common_bytes(), expected) << "the output has a copy a rank";
  for (int rank = 0; rank < 4; ++rank) EXPECT_NE(group.bytes(rank), armed);
}

TEST(ProtocolMailbox, APollStopsAtEveryMissingWord) {
  PlainMemory memory;
  for (int missing = 0; missing < 12; ++missing) {
    auto lines = numbered_lines(3);
    lines[static_cast<std::size_t>(missing / 4)].word[missing % 4] = kEmptyWord;
    EXPECT_EQ(poll_run(memory, lines.data(), 0, 3), missing / 4);
    EXPECT_EQ(poll_run(memory, lines.data(), 0, missing / 4), missing / 4)
        << "looks no further than it is asked to";
    EXPECT_EQ(poll_run(memory, lines.data(), missing / 4 + 1, 3), 3) << "looks no more at what is done";
  }
}

TEST(ProtocolMailbox, ATornLineCostsARetryAndNothingElse) {
  const auto data = numbered_lines(2);
  std::vector<Line> mailbox(2, Line{{kEmptyWord, kEmptyWord, kEmptyWord, kEmptyWord}});
  PlainMemory memory;
  // The words arrive one by one, in an order no memory promises.
  const int order[8] = {6, 1, 3, 0, 7, 2, 5, 4};
  memory.on_pause = [&](u32 spins, int missing, const Spot&) {
    EXPECT_EQ(missing, 1);
    if (spins >= 8) return WaitVerdict::expired;
    mailbox[static_cast<std::size_t>(order[spins] / 4)].word[order[spins] % 4] =
        data[static_cast<std::size_t>(order[spins] / 4)].word[order[spins] % 4];
    return WaitVerdict::go_on;
  };
  Spot spot{Site::latent_poll};
  ASSERT_TRUE(wait_run(memory, spot, mailbox.data(), 0, 2));
  EXPECT_TRUE(same(mailbox[0], data[0]) && same(mailbox[1], data[1]));
  EXPECT_TRUE(memory.faults.empty());
}

TEST(ProtocolMailbox, RunsNameTheFirstPeerThatIsMissing) {
  const auto data = numbered_lines(2);
  const std::vector<Line> absent(2, Line{{1, 2, 3, kEmptyWord}});
  Runs runs;
  runs.count = 4;
  runs.want(2);
  for (int i = 0; i < 4; ++i) runs.from[i] = i == 1 || i == 3 ? absent.data() : data.data();
  PlainMemory memory;
  int most_missing = 0;
  memory.on_pause = [&](u32, int missing, const Spot&) {
    most_missing = std::max(most_missing, missing);
    return WaitVerdict::expired;
  };
  Spot spot{Site::shared_poll, -1, 3};
  EXPECT_FALSE(wait_runs(memory, spot, runs));
  ASSERT_EQ(memory.faults, std::vector{FaultKind::deadline});
  EXPECT_EQ(most_missing, 2);
  EXPECT_EQ(memory.last_spot.peer, 1);
  EXPECT_EQ(memory.last_spot.token, 3);
  EXPECT_EQ(memory.last_spot.site, Site::shared_poll);
}

TEST(ProtocolMailbox, AnExpiredWaitLooksOnceMore) {
  Line line{{kEmptyWord, 2, 3, 4}};
  PlainMemory memory;
  memory.on_pause = [&](u32, int, const Spot&) {
    line.word[0] = 1;  // it came while the clock was read
    return WaitVerdict::expired;
  };
  Spot spot{Site::consume};
  EXPECT_TRUE(wait_run(memory, spot, &line, 0, 1));
  EXPECT_TRUE(memory.faults.empty());
}

TEST(ProtocolMailbox, AnEndedWaitRaisesNothingItself) {
  const Line line{{kEmptyWord, 2, 3, 4}};
  PlainMemory memory;
  memory.on_pause = [](u32, int, const Spot&) { return WaitVerdict::ended; };
  Spot spot{Site::consume};
  EXPECT_FALSE(wait_run(memory, spot, &line, 0, 1));
  EXPECT_TRUE(memory.faults.empty());
}

TEST(ProtocolMailbox, EqualHeadersPass) {
  PlainGroup group(mailbox_shape(4), kArmed);
  PlainMemory memory;
  for (int rank = 0; rank < 4; ++rank)
    publish_header(memory, group.view(rank), 2, {5, 3, rank == 1 ? 0u : 7u, 1234});
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_TRUE(check_headers(memory, group.view(rank), 2, {5, 3, 7, 1234})) << rank;
  EXPECT_TRUE(memory.faults.empty());
}

TEST(ProtocolMailbox, ADifferentHeaderIsAFaultThatNamesTheField) {
  struct Case {
    Header theirs;
    HeaderField field;
    u64 expected, seen;
  };
  for (const Case& c :
       {Case{{6, 3, 7, 1234}, HeaderField::batch, 5, 6}, Case{{5, 4, 7, 1234}, HeaderField::mode, 3, 4},
        Case{{5, 3, 8, 1234}, HeaderField::layer, 7, 8},
        Case{{5, 3, 7, 1235}, HeaderField::shape, 1234, 1235}}) {
    PlainGroup group(mailbox_shape(4), kArmed);
    PlainMemory memory;
    for (int rank = 0; rank < 4; ++rank)
      publish_header(memory, group.view(rank), 0, rank == 2 ? c.theirs : Header{5, 3, 7, 1234});
    EXPECT_FALSE(check_headers(memory, group.view(1), 0, {5, 3, 7, 1234}));
    ASSERT_EQ(memory.faults, std::vector{FaultKind::header_mismatch});
    EXPECT_EQ(memory.last_spot.site, Site::header_poll);
    EXPECT_EQ(memory.last_spot.peer, 2);
    EXPECT_EQ(memory.last_spot.field, c.field);
    EXPECT_EQ(memory.last_spot.expected, c.expected);
    EXPECT_EQ(memory.last_spot.seen, c.seen);
  }
}

TEST(ProtocolMailbox, HalfAHeaderIsWaitedFor) {
  PlainGroup group(mailbox_shape(2), kArmed);
  PlainMemory memory;
  const Header header{5, 3, 7, 1234};
  publish_header(memory, group.view(0), 1, header);
  const BoxView view = group.view(0);
  view.mine<u32>(Region::header, 1, 1, 0)[0] = static_cast<u32>(pack_header(header));
  EXPECT_FALSE(check_headers(memory, view, 1, header));
  ASSERT_EQ(memory.faults, std::vector{FaultKind::deadline});
  EXPECT_EQ(memory.last_spot.peer, 1);
  view.mine<u32>(Region::header, 1, 1, 0)[1] = static_cast<u32>(pack_header(header) >> 32);
  EXPECT_TRUE(check_headers(memory, view, 1, header));
}

TEST(ProtocolMailbox, TheLastClusterAdvancesTheEpochOnce) {
  PlainGroup group(mailbox_shape(2), 0);
  PlainMemory memory;
  const BoxView view = group.view(1);
  const Record first{3, region_bit(Region::latent)}, second{2, region_bit(Region::recv)};
  for (int cluster = 0; cluster < 3; ++cluster) {
    EXPECT_EQ(*view.control(Control::epoch), 0u);
    EXPECT_EQ(finish_call(memory, view, 0, first, 3), cluster == 2);
  }
  EXPECT_EQ(*view.control(Control::epoch), 1u);
  EXPECT_EQ(*view.control(Control::arrivals), 0u);
  EXPECT_EQ(*view.control(Control::record_even), pack_record(first));
  EXPECT_EQ(*view.control(Control::record_odd), 0u);
  EXPECT_TRUE(finish_call(memory, view, 1, second, 1));
  EXPECT_EQ(*view.control(Control::epoch), 2u);
  EXPECT_EQ(*view.control(Control::record_even), pack_record(first));
  EXPECT_EQ(*view.control(Control::record_odd), pack_record(second));
  EXPECT_EQ(*group.view(0).control(Control::epoch), 0u) << "a rank's epoch is its own";
}

TEST(ProtocolMailbox, CleaningARunLeavesNoSentinel) {
  auto lines = numbered_lines(3);
  for (auto& line : lines) line.word[1] = kEmptyWord;
  std::vector<Line> clean(3);
  clean_run(clean.data(), lines.data(), 3);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_FALSE(has_empty(clean[i]));
    EXPECT_EQ(clean[i].word[0], lines[i].word[0]);
    EXPECT_EQ(clean[i].word[1], kCleanedWord);
  }
}

}  // namespace
}  // namespace moetail::protocol
