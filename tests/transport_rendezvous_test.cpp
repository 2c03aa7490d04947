// SPDX-License-Identifier: Apache-2.0
// The rendezvous of ranks, here threads that each have a seat and a mapping of their own: rounds, votes, deadlines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/expect_error.hpp"
#include "tests/record.hpp"
#include "transport/rendezvous.hpp"
#include "transport/shared_heap.hpp"

namespace moetail::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using transport::Rendezvous;
using transport::Session;

/// Runs `work` on a thread a rank; what each threw, by rank.
std::vector<transport::Outcome> on_all(int ranks, const std::function<void(int)>& work) {
  std::vector<transport::Outcome> outcomes(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        work(rank);
      } catch (...) {
        outcomes[static_cast<std::size_t>(rank)] = transport::current_failure();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

void expect_all(const std::vector<transport::Outcome>& outcomes, Code code,
                const std::vector<std::string>& parts) {
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    SCOPED_TRACE(rank);
    EXPECT_EQ(static_cast<int>(outcomes[rank].code), static_cast<int>(code)) << outcomes[rank].reason;
    for (const std::string& part : parts) EXPECT_THAT(outcomes[rank].reason, HasSubstr(part));
  }
}

class Meeting : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Meeting, ::testing::Values(1, 2, 4, 16));

TEST_P(Meeting, EveryRankReadsAllLettersOfEveryRound) {
  const int ranks = GetParam();
  const Session session(ranks);
  const int rounds = 200;
  expect_all(on_all(ranks,
                    [&](int rank) {
                      Rendezvous seat(session.token(), rank, ranks, 20s);
                      for (int round = 0; round < rounds; ++round) {
                        const auto all = seat.gather("round", fmt::format("{}:{}", rank, round));
                        for (int peer = 0; peer < ranks; ++peer)
                          if (all[static_cast<std::size_t>(peer)] != fmt::format("{}:{}", peer, round))
                            base::fail(Code::internal, "{} in round {}", all[static_cast<std::size_t>(peer)],
                                       round);
                      }
                    }),
             Code::ok, {});
}

TEST_P(Meeting, OneFailureIsEveryRanksError) {
  const int ranks = GetParam();
  const Session session(ranks);
  const int last = ranks - 1;
  std::vector<std::unique_ptr<Rendezvous>> seats;
  for (int rank = 0; rank < ranks; ++rank)
    seats.push_back(std::make_unique<Rendezvous>(session.token(), rank, ranks, 20s));
  const auto fails = [&](int rank) {
    seats[static_cast<std::size_t>(rank)]->vote_on("a step", [&] {
      if (rank == last) base::fail(Code::resource, "no room");
    });
  };
  expect_all(on_all(ranks, fails), Code::resource,
             {fmt::format("rank {} of {}: a step: no room", last, ranks)});
  // A vote that failed is no end of the session.
  expect_all(on_all(ranks, [&](int rank) { seats[static_cast<std::size_t>(rank)]->vote("the next step"); }),
             Code::ok, {});
}

TEST(MeetingFault, RanksAtDifferentSteps) {
  const Session session(4);
  const auto outcomes = on_all(4, [&](int rank) {
    Rendezvous seat(session.token(), rank, 4, 20s);
    seat.vote(rank == 2 ? "recover" : "make_boxes");
  });
  expect_all(outcomes, Code::call_order, {"ranks 0 and 2 disagree", "is at make_boxes", "at recover"});
}

TEST(MeetingFault, WhoDoesNotComeIsNamedAfterTheDeadline) {
  const Session session(4);
  const auto begin = std::chrono::steady_clock::now();
  const auto outcomes = on_all(3, [&](int rank) {
    Rendezvous seat(session.token(), rank, 4, 300ms);
    seat.vote("a step");
  });
  const auto elapsed = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(elapsed, 300ms);
  EXPECT_LT(elapsed, 1300ms);
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.code, Code::fault);
    EXPECT_THAT(outcome.reason, HasSubstr("rank 3 did not join within 0.300 s"));
  }
  record_fault("a rank that never joins", kThreads, 1, "named on every other rank at the deadline");
}

TEST(MeetingFault, WhoLeavesIsNamedAtOnce) {
  const Session session(3);
  const auto begin = std::chrono::steady_clock::now();
  const auto outcomes = on_all(3, [&](int rank) {
    Rendezvous seat(session.token(), rank, 3, 60s);
    seat.vote("first");
    if (rank == 1) return;
    seat.vote("second");
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  for (const std::size_t rank : {std::size_t{0}, std::size_t{2}}) {
    EXPECT_EQ(outcomes[rank].code, Code::fault);
    EXPECT_THAT(outcomes[rank].reason, HasSubstr("rank 1 (process "));
    EXPECT_THAT(outcomes[rank].reason, HasSubstr(") left before it came to second"));
  }
}

TEST(MeetingFault, CancelEndsAllWaitsNowAndLater) {
  Session session(2);
  Rendezvous seat(session.token(), 0, 2, 60s);
  std::thread launcher([&] {
    std::this_thread::sleep_for(100ms);
    session.cancel("rank 1 was killed");
  });
  for (int i = 0; i < 2; ++i) expect_error(Code::fault, {"rank 1 was killed"}, [&] { seat.vote("a step"); });
  expect_error(Code::fault, {"rank 1 was killed"}, [&] { Rendezvous late(session.token(), 1, 2, 60s); });
  launcher.join();
}

TEST(MeetingFault, TheWrongSegmentIsNoSession) {
  const transport::SharedSegment plain = transport::SharedSegment::create(8192);
  expect_error(Code::fault, {"size = 8192"}, [&] { Rendezvous seat(plain.name(), 0, 1, 1s); });
  std::string token;
  { token = Session(1).token(); }
  expect_error(Code::fault, {"cannot be opened"}, [&] { Rendezvous seat(token, 0, 1, 1s); });
}

// What is not allocated when the heap is made would be a SIGBUS later, when memory is short.
TEST(SharedHeaps, AllocateEveryRegionWhereItsWordsLie) {
  protocol::Shape shape;
  shape.hidden = 96;
  shape.latent = 160;
  shape.ranks = 4;
  const protocol::Layout layout = protocol::make_layout(shape);
  const auto covers = [](const std::vector<transport::SharedSegment::Range>& ranges, std::size_t begin,
                         std::size_t end) {
    return std::any_of(ranges.begin(), ranges.end(),
                       [&](const auto& range) { return range.begin <= begin && end <= range.end; });
  };
  std::vector<protocol::u8> own(layout.total_bytes), other(layout.total_bytes);
  for (const bool has_common : {true, false}) {
    protocol::BoxView view;
    view.layout = layout;
    view.peer[0] = own.data();
    view.common = has_common ? other.data() : nullptr;
    const auto own_ranges = transport::used_ranges(layout, has_common, false);
    const auto common_ranges = transport::used_ranges(layout, has_common, true);
    int holes = 0;
    for (int i = 0; i < protocol::kRegions; ++i) {
      SCOPED_TRACE(protocol::kRegionTable.specs[i].name);
      const std::size_t begin = layout.offset[i], end = begin + layout.region_bytes[i];
      const bool in_common =
          view.at<protocol::u8>(0, static_cast<protocol::Region>(i), 0, 0, 0) == other.data() + begin;
      EXPECT_TRUE(covers(in_common ? common_ranges : own_ranges, begin, end));
      // The control: what lies elsewhere is not paid for twice.
      holes += covers(in_common ? own_ranges : common_ranges, begin, end) ? 0 : 1;
    }
    EXPECT_EQ(holes, protocol::kRegions);
  }
}

/// Ranks as threads, each with mappings of its own, so that a race detector sees one rank's accesses only.
TEST(SharedHeaps, LieInSharedMemoryAndKeepNoName) {
  protocol::Shape shape;
  shape.hidden = 96;
  shape.latent = 160;
  shape.ranks = 4;
  shape.capacity = 8;
  shape.poll_capacity = 4;
  const protocol::Layout layout = protocol::make_layout(shape);
  for (const auto copies : {transport::Copies::one_for_all, transport::Copies::one_a_rank}) {
    const Session session(4);
    const auto outcomes = on_all(4, [&](int rank) {
      Rendezvous seat(session.token(), rank, 4, 20s);
      const transport::SharedHeap heap(seat, "boxes", layout, copies);
      const protocol::BoxView& view = heap.view();
      const auto word = [&](int peer, int source) {
        return std::atomic_ref<protocol::u32>(
            *view.at<protocol::u32>(peer, protocol::Region::shared, 0, source, 0));
      };
      const auto common = [&](int source) {
        return std::atomic_ref<protocol::u32>(
            *view.mine<protocol::u32>(protocol::Region::latent, 1, source, 0));
      };
      for (int peer = 0; peer < 4; ++peer)
        word(peer, rank).store(static_cast<unsigned>(100 * rank + peer + 1));
      common(rank).store(static_cast<unsigned>(rank) + 1);
      seat.vote("written");
      for (int source = 0; source < 4; ++source) {
        if (word(rank, source).load() != static_cast<unsigned>(100 * source + rank + 1))
          base::fail(Code::internal, "rank {} reads {}", rank, word(rank, source).load());
        const bool shared = copies == transport::Copies::one_for_all || source == rank;
        if (common(source).load() != (shared ? static_cast<unsigned>(source) + 1 : 0))
          base::fail(Code::internal, "rank {} reads {} in its latents", rank, common(source).load());
      }
      seat.vote("read");
    });
    expect_all(outcomes, Code::ok, {});
  }
}

}  // namespace
}  // namespace moetail::testing
