// SPDX-License-Identifier: Apache-2.0
// Ranks that fall out of step: a call missed, one too many, a rank without tokens, a rank frozen beyond the deadline or without memory at any
// site. Each ends in the named fault within the deadline + 1 s of the first wait that nobody serves, and the ranks go on together with right
// results after World::recover.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <new>

#include "tests/harness.hpp"
#include "tests/hooks.hpp"
#include "tests/lone_rank.hpp"
#include "tests/record.hpp"
#include "tests/variants.hpp"

namespace moetail::testing {
namespace {

using protocol::FaultKind;
using protocol::Site;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kDeadline = 250ms;
constexpr int kRanks = 4;
constexpr const char* kNamed =
    "named fault (rank, site) within the deadline + 1 s; right results after recover";

class HostileCalls : public ::testing::TestWithParam<Variant> {
 protected:
  explicit HostileCalls(int threads = 0) : harness_(small_shape(kRanks), options(threads)) {
    call_.mode = GetParam().mode;
    reference_ = harness_.check(GetParam().batch, call_);
    set_deadline(harness_, kDeadline);
  }

  static HarnessOptions options(int threads) {
    HarnessOptions options;
    options.policy = kSharePolicy;
    options.layers = 2;
    options.world.threads = threads;
    options.world.deadline = options.world.first_deadline = kNoHurry;
    return options;
  }

  /// One call on one rank, in step with nobody.
  void enqueue(int rank, int batch, int layer = 0) {
    CallOptions options = call_;
    options.layer = layer;
    take_alone(
        harness_, rank,
        enqueue_rank(harness_, rank, batch, harness_.make_inputs(std::max(batch, 1), options), options));
  }

  /// Every fault record says who waited, where and for whom; the one that saw it first hand waited no longer than it may.
  void expect_fault(const std::string& site, int blamed) {
    const auto begin = Clock::now();
    const std::string text = fault_of(harness_.world());
    EXPECT_LT(Clock::now() - begin, kDeadline + 1s);
    EXPECT_NE(text.find("fault at " + site), std::string::npos) << text;
    EXPECT_NE(text.find(fmt::format("waited for rank {}", blamed)), std::string::npos) << text;
    int first_hand = 0;
    for (const TailBox& box : harness_.boxes()) {
      const auto report = box.status();
      if (!report || report->record.kind != FaultKind::deadline) continue;
      ++first_hand;
      EXPECT_EQ(report->record.rank, box.rank());
      EXPECT_LE(std::chrono::nanoseconds(report->record.elapsed_ns), kDeadline + 1s) << report->text();
    }
    EXPECT_GT(first_hand, 0);
  }

  void expect_right_after_recovery() {
    harness_.set_hooks(nullptr);
    harness_.world().recover(harness_.boxes());
    for (const TailBox& box : harness_.boxes()) EXPECT_FALSE(box.status());
    set_deadline(harness_, kNoHurry);
    for (int call = 0; call < 4; ++call) EXPECT_EQ(harness_.check(GetParam().batch, call_), reference_);
    set_deadline(harness_, kDeadline);
  }

  Harness harness_;
  CallOptions call_;
  std::vector<Bf16> reference_;
};
INSTANTIATE_TEST_SUITE_P(Modes, HostileCalls, ::testing::ValuesIn(variants()), variant_name);

// The calls that follow serve the waits of the one that was missed, where they look the same, until the last has no partner.
TEST_P(HostileCalls, ARankThatMissesACallLikeItsNeighbours) {
  {
    const HeldStreams held(harness_.world());
    for (int rank = 0; rank < kRanks; ++rank)
      for (int call = 0; call < (rank == 2 ? 3 : 4); ++call) enqueue(rank, GetParam().batch);
  }
  expect_fault("header_poll", 2);
  EXPECT_EQ(harness_.boxes()[0].status()->record.epoch, 4u) << "the fourth call after the first";
  expect_right_after_recovery();
  record_fault("a rank misses a call (the next ones are alike)", kThreads, 1, kNamed);
}

TEST_P(HostileCalls, ARankThatMissesACallOfAnotherLayer) {
  {
    const HeldStreams held(harness_.world());
    for (int rank = 0; rank < kRanks; ++rank)
      for (int layer = 0; layer < 2; ++layer)
        if (rank != 2 || layer != 0) enqueue(rank, GetParam().batch, layer);
  }
  const std::string text = fault_of(harness_.world());
  EXPECT_NE(text.find("fault at header_poll"), std::string::npos) << text;
  EXPECT_NE(text.find("layer is"), std::string::npos) << text;
  expect_right_after_recovery();
  record_fault("a rank misses a call (the next is of another layer)", kThreads, 1,
               "named fault: the ranks disagree in the layer; right results after recover");
}

TEST_P(HostileCalls, ARankThatMakesACallTooMany) {
  {
    const HeldStreams held(harness_.world());
    for (int rank = 0; rank < kRanks; ++rank)
      for (int call = 0; call < (rank == 1 ? 2 : 1); ++call) enqueue(rank, GetParam().batch);
  }
  expect_fault("header_poll", 0);
  EXPECT_EQ(harness_.boxes()[1].status()->record.kind, FaultKind::deadline) << "nobody else waits";
  expect_right_after_recovery();
  record_fault("a rank makes a call too many", kThreads, 1, kNamed);
}

TEST_P(HostileCalls, ARankWithoutTokens) {
  {
    const HeldStreams held(harness_.world());
    for (int rank = 0; rank < kRanks; ++rank) enqueue(rank, rank == 3 ? 0 : GetParam().batch);
  }
  expect_fault("header_poll", 3);
  EXPECT_FALSE(harness_.boxes()[3].status() &&
               harness_.boxes()[3].status()->record.kind == FaultKind::deadline);
  expect_right_after_recovery();
  record_fault("B = 0 on one rank only", kThreads, 1, kNamed);
}

// Frozen in one pass of a site, then it wakes: what it does late must not spoil what comes after the recovery.
TEST_P(HostileCalls, ARankFrozenBeyondTheDeadline) {
  std::uint64_t tries = 0;
  for (const Site site : GetParam().sites) {
    const bool is_short_choice =
        site == Site::latent_publish || site == Site::twoshot_push || site == Site::rearm;
    if (!is_thorough() && !is_short_choice) continue;
    SCOPED_TRACE(protocol::site_name(site));
    const std::uint64_t epoch = harness_.state(1).view.control(protocol::Control::epoch)[0];
    Stall freeze({site, 2, Where::kAny, epoch}, 3 * kDeadline);
    harness_.set_hooks(&freeze);
    const auto& inputs = harness_.make_inputs(GetParam().batch, call_);
    {
      const HeldStreams held(harness_.world());
      for (int call = 0; call < 2; ++call) harness_.enqueue(GetParam().batch, inputs, call_);
    }
    const std::string text = fault_of(harness_.world());
    EXPECT_NE(text.find("waited for rank"), std::string::npos) << text;
    EXPECT_EQ(freeze.stalls() > 0, true);
    for (const TailBox& box : harness_.boxes()) {
      const auto report = box.status();
      if (report && report->record.kind == FaultKind::deadline) {
        EXPECT_LE(std::chrono::nanoseconds(report->record.elapsed_ns), kDeadline + 1s) << report->text();
      }
    }
    expect_right_after_recovery();
    ++tries;
  }
  record_fault("a rank frozen beyond the deadline, at each site", kThreads, tries, kNamed);
}

/// Memory that is not there when a launch asks for it, at a site of a rank.
class NoMemory : public cpu::Hooks {
 public:
  explicit NoMemory(Where where) : where_(where) {}
  bool at(const cpu::SiteEvent& event) override {
    if (where_.matches(event)) throw std::bad_alloc();
    return true;
  }

 private:
  const Where where_;
};

/// Two clusters a rank: an allocation may fail on the stream's thread or on one of the team's.
class HostileMemory : public HostileCalls {
 protected:
  HostileMemory() : HostileCalls(2 * kRanks) {}
};
INSTANTIATE_TEST_SUITE_P(Modes, HostileMemory, ::testing::ValuesIn(variants()), variant_name);

TEST_P(HostileMemory, AnAllocationThatFailsAtAnySite) {
  std::uint64_t tries = 0;
  for (const Site site : GetParam().sites) {
    const bool consumes = site == Site::consume || site == Site::consume_rearm;  // which allocates nothing
    if (consumes) continue;
    for (const int cluster : {0, 1}) {
      SCOPED_TRACE(fmt::format("{}, cluster {}", protocol::site_name(site), cluster));
      NoMemory no_memory({site, 2, cluster});
      harness_.set_hooks(&no_memory);
      const auto begin = Clock::now();
      {
        const HeldStreams held(harness_.world());
        harness_.enqueue(GetParam().batch, harness_.make_inputs(GetParam().batch, call_), call_);
      }
      const std::string text = fault_of(harness_.world());
      harness_.set_hooks(nullptr);
      if (text.empty() && cluster == 1) continue;  // the second cluster does not pass this site
      EXPECT_LT(Clock::now() - begin, kDeadline + 1s);
      EXPECT_NE(text.find(fmt::format("fault at {}: rank 2", protocol::site_name(site))), std::string::npos)
          << text;
      EXPECT_NE(text.find("no more memory"), std::string::npos) << text;
      EXPECT_EQ(harness_.boxes()[2].status()->record.kind, FaultKind::no_memory);
      expect_right_after_recovery();
      ++tries;
    }
  }
  record_fault("an allocation of a rank fails in a launch, at each site", kThreads, tries,
               "named fault at once; right results after recover");
}

// The control of all of the above: ranks in step have no fault.
TEST_P(HostileCalls, RanksInStepAloneHaveNone) {
  {
    const HeldStreams held(harness_.world());
    for (int rank = 0; rank < kRanks; ++rank)
      for (int call = 0; call < 4; ++call) enqueue(rank, GetParam().batch);
  }
  harness_.world().synchronize();
  EXPECT_EQ(harness_.check(GetParam().batch, call_), reference_);
}

}  // namespace
}  // namespace moetail::testing
