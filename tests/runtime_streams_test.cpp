// SPDX-License-Identifier: Apache-2.0
// A box used from two places at once: wrong streams, a second main stream, a second thread.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/expect_error.hpp"
#include "tests/one_call.hpp"
#include "tests/record.hpp"

namespace moetail::testing {
namespace {

class RuntimeStreams : public OneCall {};

TEST_F(RuntimeStreams, StreamsOfAnotherRank) {
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const Stream other = harness_.world().main_stream(1 - static_cast<int>(rank));
    const std::vector<std::string> parts = {fmt::format("stream of rank = {}", 1 - rank),
                                            fmt::format("a stream of rank {}", rank)};
    expect_error(Code::invalid_argument, parts, [&] {
      harness_.tail(static_cast<int>(rank)).push(shared(0), kBatch, Mode::publish, other);
    });
    begin(Mode::front);
    for (int each = 0; each < 2; ++each) calls_[static_cast<std::size_t>(each)].call.shared = shared(each);
    calls_[rank].call.stream = other;
    expect_error(Code::invalid_argument, parts, [&] { run(); });
  }
  begin(Mode::publish);
  push(0);
  push(1);
  const auto views = run();
  std::vector<Bf16> rows(static_cast<std::size_t>(kBatch * harness_.shape().hidden));
  expect_error(Code::invalid_argument, {"take: stream of rank = 1"},
               [&] { harness_.boxes()[0].take(views[0], rows, harness_.world().main_stream(1)); });
  expect_error(Code::invalid_argument, {"consumer: stream of rank = 1"},
               [&] { harness_.boxes()[0].consumer(views[0], harness_.world().main_stream(1)); });
  take_and_judge(views);
}

TEST_F(RuntimeStreams, TheSideStreamTakesNeitherRunNorConsumers) {
  push(0);
  push(1);
  auto wrong = calls_;
  wrong[1].call.stream = harness_.world().side_stream(1);
  expect_error(Code::busy, {"run: stream = rank1.side", "the box's main stream"},
               [&] { harness_.world().run(wrong); });
  const auto views = run();
  std::vector<Bf16> rows(static_cast<std::size_t>(kBatch * harness_.shape().hidden));
  expect_error(Code::busy, {"take: stream = rank1.side"},
               [&] { harness_.boxes()[1].take(views[1], rows, harness_.world().side_stream(1)); });
  expect_error(Code::busy, {"consumer: stream = rank1.side"},
               [&] { harness_.boxes()[1].consumer(views[1], harness_.world().side_stream(1)); });
  take_and_judge(views);
}

// A stream of the same rank of another world would be a second main stream, from the first call on.
TEST_F(RuntimeStreams, ASecondMainStream) {
  const World other = World::virtual_ranks(2);
  for (int call = 0; call < 2; ++call) {
    begin(Mode::publish);
    const std::vector<std::string> parts = {"stream = rank1.main of another world",
                                            "the box's one main stream"};
    for (const Stream& stream : {other.main_stream(1), other.side_stream(1)})
      expect_error(Code::busy, {"push: stream = rank1", "of another world"},
                   [&] { harness_.tail(1).push(shared(1), kBatch, Mode::publish, stream); });
    push(0);
    push(1);
    auto wrong = calls_;
    wrong[1].call.stream = other.main_stream(1);
    expect_error(Code::busy, parts, [&] { harness_.world().run(wrong); });
    calls_[1].call.stream = harness_.world().main_stream(1);  // by name: the same as by default
    const auto views = run();
    std::vector<Bf16> rows(static_cast<std::size_t>(kBatch * harness_.shape().hidden));
    expect_error(Code::busy, parts, [&] { harness_.boxes()[1].take(views[1], rows, other.main_stream(1)); });
    expect_error(Code::busy, parts, [&] { harness_.boxes()[1].consumer(views[1], other.main_stream(1)); });
    take_and_judge(views);
  }
}

// A second thread inside a host call of the same box, held there as long as the test wants.
TEST_F(RuntimeStreams, TwoThreadsOnABox) {
  push(0);
  push(1);
  const std::vector<std::string> parts = {"box of rank 1", "two threads at once", "one thread at a time"};
  std::vector<Bf16> rows(static_cast<std::size_t>(kBatch * harness_.shape().hidden));
  {
    const runtime::CallTracker::Use use(harness_.boxes()[1].impl()->tracker, 1);
    std::thread([&] {
      expect_error(Code::busy, parts, [&] { push(1); });
      expect_error(Code::busy, parts, [&] { harness_.tail(1).publish(kBatch); });
      expect_error(Code::busy, parts, [&] { harness_.tail(1).poll_slots(kBatch); });
      expect_error(Code::busy, parts, [&] { run(); });
      expect_error(Code::busy, parts, [&] { harness_.boxes()[1].take(OutView{}, rows); });
      expect_error(Code::busy, parts, [&] { harness_.boxes()[1].consumer(OutView{}); });
      EXPECT_FALSE(harness_.boxes()[1].status()) << "status is for any thread";
    }).join();
  }
  finish();
  record_fault("C++ door: a second thread on a box", kThreads, 6,
               "refused as busy; the call then runs right");
}

}  // namespace
}  // namespace moetail::testing
