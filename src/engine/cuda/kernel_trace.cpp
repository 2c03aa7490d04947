// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/kernel_trace.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

namespace moetail::cuda {

static_assert(Trace::kDeviceCalls == kernels::kTraceCalls && Trace::kBlockWarps == kernels::kTraceWarps);

namespace {

using kernels::Mark;
using kernels::TraceSlot;
using kernels::u32;
using kernels::u64;

/// A mark's clock in full: it holds the low half, and was read less than 2^32 cycles before the warp's end.
u64 whole_clock(const TraceSlot& slot, u32 clock) {
  return slot.end_clock - static_cast<u32>(static_cast<u32>(slot.end_clock) - clock);
}

/// One time for all SMs, in nanoseconds since `origin_ns`, the earliest end of a warp.
class TimeLine {
 public:
  explicit TimeLine(std::span<const TracedRank> ranks) {
    for_each(ranks, [&](const TraceSlot& slot) {
      origin_ns_ = std::min(origin_ns_, slot.end_ns);
      Sm& sm = sms_[slot.sm];
      if (sm.count++ == 0) sm.first_clock = slot.end_clock;
      sm.first_clock = std::min(sm.first_clock, slot.end_clock);
    });
    for_each(ranks, [&](const TraceSlot& slot) {
      Sm& sm = sms_[slot.sm];
      sm.mean_cycles += cycles(sm, slot.end_clock) / sm.count;
      sm.mean_ns += ns(slot) / sm.count;
    });
    double products = 0, squares = 0;
    for_each(ranks, [&](const TraceSlot& slot) {
      const Sm& sm = sms_[slot.sm];
      const double from_mean = cycles(sm, slot.end_clock) - sm.mean_cycles;
      products += from_mean * (ns(slot) - sm.mean_ns);
      squares += from_mean * from_mean;
    });
    if (squares > 0 && products > 0) ns_per_cycle_ = products / squares;
    for_each(ranks, [&](const TraceSlot& slot) {
      Sm& sm = sms_[slot.sm];
      const double begin_ns = ns(slot) - cycles(sm, slot.end_clock) * ns_per_cycle_;
      sm.begin_ns = sm.begin_ns ? std::max(*sm.begin_ns, begin_ns) : begin_ns;
    });
  }

  u64 origin_ns() const { return origin_ns_; }
  double at_ns(const TraceSlot& slot, u32 clock) const {
    const Sm& sm = sms_.at(slot.sm);
    return *sm.begin_ns + cycles(sm, whole_clock(slot, clock)) * ns_per_cycle_;
  }

 private:
  struct Sm {
    int count = 0;
    u64 first_clock = 0;  ///< what its cycles count from
    double mean_cycles = 0, mean_ns = 0;
    std::optional<double> begin_ns;  ///< time of first_clock
  };

  template <typename Visit>
  static void for_each(std::span<const TracedRank> ranks, const Visit& visit) {
    for (const TracedRank& rank : ranks)
      for (const auto& slot : rank.slots) visit(slot.second);
  }
  static double cycles(const Sm& sm, u64 clock) {
    return static_cast<double>(static_cast<std::int64_t>(clock - sm.first_clock));
  }
  double ns(const TraceSlot& slot) const { return static_cast<double>(slot.end_ns - origin_ns_); }

  u64 origin_ns_ = ~u64{0};
  double ns_per_cycle_ = 1;  ///< where all warps ended at once nothing says more
  std::map<u32, Sm> sms_;
};

}  // namespace

TraceSlots::TraceSlots(ContextRef context, const Stream& stream, int rank)
    : rank_(rank), memory_(std::move(context), kernels::kTraceSlots * sizeof(TraceSlot)) {
  stream.fill(memory_.address(), 0, memory_.bytes() / sizeof(u32));
}

TracedRank TraceSlots::take(const Stream& stream) {
  std::vector<TraceSlot> all(kernels::kTraceSlots);
  stream.copy(all.data(), memory_.address(), memory_.bytes());
  stream.fill(memory_.address(), 0, memory_.bytes() / sizeof(u32));
  stream.synchronize();
  TracedRank taken;
  taken.rank = rank_;
  const u64 newest = std::ranges::max(all, {}, &TraceSlot::call).call;
  // An older call's that a later one with fewer blocks has left in its place is no whole call.
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].call != 0 && all[i].call + kernels::kTraceCalls > newest)
      taken.slots.push_back({static_cast<int>(i % kernels::kTraceBlockSlots), all[i]});
  std::ranges::stable_sort(taken.slots, {}, [](const auto& slot) { return slot.second.call; });
  return taken;
}

TracedSpans spans_of(std::span<const TracedRank> ranks) {
  TracedSpans traced;
  const TimeLine time(ranks);
  for (const auto& [rank, slots] : ranks)
    for (const auto& [place, slot] : slots) {
      Trace::Span span;
      span.thread = place;
      span.rank = rank;
      span.layer = slot.layer;
      span.call = slot.call;
      span.end_us = time.at_ns(slot, slot.clock[0]) / 1000;
      for (int i = 1; i < kernels::kMarks; ++i) {
        if (slot.clock[i] == 0) continue;
        span.name = kernels::phase_name(static_cast<Mark>(i));
        span.begin_us = std::exchange(span.end_us, time.at_ns(slot, slot.clock[i]) / 1000);
        traced.spans.push_back(span);
      }
    }
  if (traced.spans.empty()) return traced;
  const double first_us = std::floor(std::ranges::min(traced.spans, {}, &Trace::Span::begin_us).begin_us);
  traced.origin_ns = time.origin_ns() + static_cast<u64>(static_cast<std::int64_t>(first_us) * 1000);
  for (Trace::Span& span : traced.spans) {
    span.begin_us -= first_us;
    span.end_us -= first_us;
  }
  return traced;
}

}  // namespace moetail::cuda
