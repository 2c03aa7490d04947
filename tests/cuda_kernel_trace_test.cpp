// SPDX-License-Identifier: Apache-2.0
// Slots of traced tails as spans: SMs whose clocks began apart, on one time line; phases in order, those that a warp did not come by left out.
#include "engine/cuda/kernel_trace.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace moetail::cuda {
namespace {

using kernels::kMarks;
using kernels::TraceSlot;
using kernels::u32;
using kernels::u64;

constexpr double kNsPerCycle = 0.5;
constexpr double kTickNs = 1000;  // of the timer
// A clock that passes 2^32 between two marks.
constexpr u64 kFirstClock[] = {5'000'000'000, (u64{7} << 32) - 3'000};

u64 clock_at(u32 sm, double ns) {
  return kFirstClock[sm] + static_cast<u64>(std::llround(ns / kNsPerCycle));
}

/// A warp on `sm` whose mark i was passed at begin_ns + 1000 * i, and which ended 100 ns after the last.
TraceSlot slot_of(u32 sm, double begin_ns, u64 call) {
  TraceSlot slot;
  slot.call = call;
  slot.sm = sm;
  slot.layer = static_cast<int>(call);
  for (int i = 0; i < kMarks; ++i) slot.clock[i] = static_cast<u32>(clock_at(sm, begin_ns + 1000.0 * i)) | 1;
  const double end_ns = begin_ns + 1000.0 * (kMarks - 1) + 100;
  slot.end_clock = clock_at(sm, end_ns);
  slot.end_ns = 1'700'000'000'000'000'000 + static_cast<u64>(std::floor(end_ns / kTickNs) * kTickNs);
  return slot;
}

std::vector<TracedRank> ranks_of(int calls) {
  std::vector<TracedRank> ranks(2);
  ranks[1].rank = 1;
  for (int call = 1; call <= calls; ++call)
    for (u32 sm = 0; sm < 2; ++sm)
      ranks[sm].slots.push_back(
          {17 * static_cast<int>(sm) + 3, slot_of(sm, 3'333.0 * call + 10.0 * sm, static_cast<u64>(call))});
  return ranks;
}

TEST(KernelTrace, SmsWhoseClocksBeganApartShareATimeLine) {
  constexpr int kCalls = 93;
  const TracedSpans traced = spans_of(ranks_of(kCalls));
  ASSERT_EQ(traced.spans.size(), static_cast<std::size_t>(2 * kCalls * (kMarks - 1)));
  const double origin = traced.spans.front().begin_us - 3.333;
  for (const auto& span : traced.spans) {
    const double begin = 3.333 * static_cast<double>(span.call) + 0.01 * span.rank;
    EXPECT_GE(span.begin_us - origin, begin - 0.1) << "the other SM's offset";
    EXPECT_LE(span.end_us - origin, begin + kMarks - 1 + 0.1);
    EXPECT_NEAR(span.end_us - span.begin_us, 1.0, 0.01) << "the rate of the clocks";
    EXPECT_EQ(span.layer, static_cast<int>(span.call));
    EXPECT_EQ(span.thread, 17 * span.rank + 3);
  }
}

// The control: clocks taken as they are would put the two SMs seconds apart, and one of them an hour away at its 2^32.
TEST(KernelTrace, RawClocksAreNoTimeLine) {
  EXPECT_GT(std::abs(static_cast<double>(kFirstClock[0]) - static_cast<double>(kFirstClock[1])) * kNsPerCycle,
            1e9);
}

TEST(KernelTrace, APhaseThatAWarpDidNotComeByIsPartOfTheNext) {
  constexpr int kCalls = 93;  // two do not say at what rate the clocks run
  auto ranks = ranks_of(kCalls);
  for (auto& rank : ranks)
    for (auto& [place, slot] : rank.slots) {
      slot.clock[static_cast<int>(kernels::Mark::published)] = 0;
      slot.clock[static_cast<int>(kernels::Mark::pushed)] = 0;
      slot.clock[static_cast<int>(kernels::Mark::prepared)] = 0;
    }
  const TracedSpans traced = spans_of(ranks);
  ASSERT_EQ(traced.spans.size(), static_cast<std::size_t>(2 * kCalls * (kMarks - 4)));
  EXPECT_STREQ(traced.spans[0].name, "prologue");
  EXPECT_STREQ(traced.spans[1].name, "re-arm");
  EXPECT_NEAR(traced.spans[1].end_us - traced.spans[1].begin_us, 4.0, 0.1);
  EXPECT_STREQ(traced.spans[kMarks - 5].name, "output");
}

TEST(KernelTrace, DevicesTimesGoOnFromTheFirstOrigin) {
  Trace trace(16);
  Trace::Span span;
  span.begin_us = 1, span.end_us = 2;
  trace.add_device(5'000'000, {span});
  trace.add_device(5'010'000, {span});
  const auto spans = trace.spans();
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_DOUBLE_EQ(spans[0].begin_us, 1);
  EXPECT_DOUBLE_EQ(spans[1].begin_us, 11);
  trace.clear();
  EXPECT_TRUE(trace.spans().empty());
  trace.add_device(7'000'000, {span});
  EXPECT_DOUBLE_EQ(trace.spans()[0].begin_us, 1);
}

}  // namespace
}  // namespace moetail::cuda
