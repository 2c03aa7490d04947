// SPDX-License-Identifier: Apache-2.0
// A rank that dies at any site: the others end within the deadline with a fault that names who waited, for
// whom and where; the group can be used again afterwards.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tests/harness.hpp"
#include "tests/hooks.hpp"
#include "tests/record.hpp"
#include "tests/variants.hpp"

namespace moetail::testing {
namespace {

using protocol::FaultKind;
using protocol::Site;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kDeathDeadline = 200ms;
// Where the deadly call still has to be completed by ranks that live, on a machine that may be busy.
constexpr auto kLongDeadline = 350ms;

// Where the others wait when a rank has died at a site, and in which call: in the same one, or, when it had
// published all that they need, in the next.
struct Consequence {
  Site waits_at;
  bool next_call;
};

Consequence consequence(const Variant& variant, Site site) {
  const bool twoshot = variant.mode == Mode::twoshot;
  const bool pushed_mode = twoshot || variant.mode == Mode::publish;
  const bool sharing = std::ranges::count(variant.sites, Site::reduced_poll) > 0;
  const Site latents = twoshot ? Site::twoshot_sum : Site::latent_poll;
  // What waits for a rank that had sent its partials, but handed on no sums.
  const Site sums = twoshot ? Site::gather_poll : sharing ? Site::reduced_poll : Site::consume;
  switch (site) {
    case Site::rows_fill:
    case Site::header_publish: return {Site::header_poll, false};
    // In publish and twoshot mode header and shards go out first, by push, then the partials; in the front
    // modes it is header, latents, shards, after the epoch.
    case Site::epoch: return {pushed_mode ? sums : Site::header_poll, false};
    case Site::latent_publish:
    case Site::twoshot_push: return {latents, false};
    case Site::shared_push: return {pushed_mode ? latents : Site::shared_poll, false};
    case Site::header_poll:
    case Site::twoshot_sum:
    case Site::reduced_publish: return {sums, false};
    case Site::latent_poll:
    case Site::reduced_poll:
    case Site::gather_publish:
    case Site::gather_poll:
    case Site::shared_poll: return {Site::consume, false};
    case Site::out_publish:
    case Site::rearm:
    case Site::consume:
    case Site::consume_rearm: return {Site::header_poll, true};
    case Site::none:
    case Site::rows_poll: break;
  }
  ADD_FAILURE() << "no consequence stated for a death at " << protocol::site_name(site);
  return {Site::none, false};
}

class EngineDeath : public ::testing::TestWithParam<Variant> {
 protected:
  static HarnessOptions options() {
    HarnessOptions options;
    options.policy = kSharePolicy;
    options.world.deadline = kDeathDeadline;
    return options;
  }
  CallOptions call() const {
    CallOptions call;
    call.mode = GetParam().mode;
    return call;
  }
};
INSTANTIATE_TEST_SUITE_P(Modes, EngineDeath, ::testing::ValuesIn(variants()), variant_name);

/// The text of the error with which `action` ends.
std::string fault_text(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::fault) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no fault";
  return "";
}

/// What the fault records of the survivors must say after rank `dead` died in the call of `epoch` or the one
/// before.
void check_records(Harness& harness, int dead, const Consequence& expected, std::uint64_t epoch) {
  const auto deadline = harness.state(dead).deadline;
  int first_hand = 0;
  for (int rank = 0; rank < harness.shape().ranks; ++rank) {
    const auto report = harness.boxes()[static_cast<std::size_t>(rank)].status();
    if (rank == dead) {
      EXPECT_FALSE(report) << report->text();
      continue;
    }
    ASSERT_TRUE(report) << "rank " << rank;
    SCOPED_TRACE(report->text());
    const auto& record = report->record;
    EXPECT_EQ(record.rank, rank);
    EXPECT_EQ(record.layer, 1);
    EXPECT_EQ(record.epoch, epoch);
    EXPECT_EQ(record.slot, static_cast<int>(epoch % 3));
    if (record.kind == FaultKind::poisoned) {
      EXPECT_NE(record.peer, rank);
      EXPECT_NE(record.peer, dead) << "the one to blame here is the rank that faulted first";
      continue;
    }
    ASSERT_EQ(record.kind, FaultKind::deadline);
    ++first_hand;
    EXPECT_EQ(record.peer, dead);
    EXPECT_STREQ(protocol::site_name(record.site), protocol::site_name(expected.waits_at));
    const auto elapsed = std::chrono::nanoseconds(record.elapsed_ns);
    EXPECT_GE(elapsed, deadline);
    EXPECT_LE(elapsed, deadline + 1s);
  }
  EXPECT_GT(first_hand, 0) << "nobody knows first hand";
}

TEST_P(EngineDeath, AtAnySiteEndsInANamedFault) {
  constexpr int kDead = 0;
  Harness harness(small_shape(4), options());
  for (Site site : GetParam().sites) {
    SCOPED_TRACE(fmt::format("rank {} dies at {}", kDead, protocol::site_name(site)));
    const Consequence expected = consequence(GetParam(), site);
    const auto deadline = expected.next_call ? kLongDeadline : kDeathDeadline;
    for (int rank = 0; rank < 4; ++rank) harness.state(rank).deadline = deadline;
    const auto reference = harness.check(GetParam().batch, call());  // call 1; call 2 is deadly
    Death death({site, kDead, Where::kAny, 1});
    harness.set_hooks(&death);
    const auto& inputs = harness.make_inputs(GetParam().batch, call());
    std::vector<const Outputs*> made;
    HeldStreams held(harness.world());
    for (int i = 0; i < 3; ++i) made.push_back(&harness.enqueue(GetParam().batch, inputs, call()));
    const auto begin = Clock::now();
    held.open();
    const std::string text = fault_text([&] { harness.world().synchronize(); });
    EXPECT_LT(Clock::now() - begin, deadline + 1s);
    EXPECT_TRUE(death.happened());

    check_records(harness, kDead, expected, expected.next_call ? 2 : 1);
    EXPECT_NE(text.find(protocol::site_name(expected.waits_at)), std::string::npos) << text;
    EXPECT_NE(text.find("waited for rank 0"), std::string::npos) << text;
    EXPECT_NE(text.find("World::recover"), std::string::npos) << text;
    for (std::size_t i = 0; i < made.size(); ++i)
      for (std::size_t rank = 1; rank < 4; ++rank) {
        const bool complete = expected.next_call && i == 0;
        EXPECT_EQ((*made[i])[rank] == reference, complete) << "call " << i + 2 << " rank " << rank;
        if (!complete) {
          EXPECT_TRUE(all_nan((*made[i])[rank])) << "call " << i + 2 << " rank " << rank;
        }
      }
    EXPECT_NE(fault_text([&] { harness.tail(1).push({}, 1); }).find("rank 1"), std::string::npos);
    harness.set_hooks(nullptr);
    harness.world().recover(harness.boxes());
    for (const TailBox& box : harness.boxes()) EXPECT_FALSE(box.status());
    EXPECT_EQ(harness.check(GetParam().batch, call()), reference);
    harness.world().recover(harness.boxes());  // allowed at any time; the next round counts its epochs from 0
  }
  record_fault("a rank killed, at each site", kThreads, GetParam().sites.size(),
               "named fault (rank, site) within the deadline + 1 s; right results after recover");
}

TEST_P(EngineDeath, OfAnyRank) {
  for (int dead : {1, 3}) {
    SCOPED_TRACE(fmt::format("rank {} dies", dead));
    const Site site = GetParam().mode == Mode::twoshot ? Site::twoshot_push : Site::latent_publish;
    HarnessOptions harness_options = options();
    harness_options.own_copies = dead == 1;
    Harness harness(small_shape(4), harness_options);
    harness.check(GetParam().batch, call());
    Death death({site, dead, Where::kAny, 1});
    harness.set_hooks(&death);
    const auto& inputs = harness.make_inputs(GetParam().batch, call());
    HeldStreams held(harness.world());
    harness.enqueue(GetParam().batch, inputs, call());
    held.open();
    const std::string text = fault_text([&] { harness.world().synchronize(); });
    EXPECT_NE(text.find(fmt::format("waited for rank {}", dead)), std::string::npos) << text;
    check_records(harness, dead, consequence(GetParam(), site), 1);
    harness.set_hooks(nullptr);
  }
  record_fault("a rank killed, whichever it is", kThreads, 2,
               "named fault (rank, site) within the deadline + 1 s");
}

// One of a rank's clusters dies: its rank finds out too, and names itself.
TEST_P(EngineDeath, OfOneCluster) {
  HarnessOptions clusters = options();
  clusters.world.threads = 6;
  Harness harness(small_shape(2), clusters);
  harness.check(GetParam().batch, call());
  const Site site = GetParam().mode == Mode::twoshot ? Site::twoshot_push : Site::latent_publish;
  Death death({site, 0, 2, 1});
  harness.set_hooks(&death);
  const auto& inputs = harness.make_inputs(GetParam().batch, call());
  HeldStreams held(harness.world());
  const Outputs& outputs = harness.enqueue(GetParam().batch, inputs, call());
  held.open();
  const std::string text = fault_text([&] { harness.world().synchronize(); });
  // In two-shot mode the owner of a chunk that lacks the dead cluster's columns lets others wait in turn.
  const bool by_owner =
      GetParam().mode == Mode::twoshot && text.find("waited for rank 1") != std::string::npos;
  EXPECT_TRUE(by_owner || text.find("waited for rank 0") != std::string::npos) << text;
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(harness.boxes()[static_cast<std::size_t>(rank)].status()) << rank;
    EXPECT_TRUE(all_nan(outputs[static_cast<std::size_t>(rank)])) << rank;
  }
  harness.set_hooks(nullptr);
  harness.world().recover(harness.boxes());
  harness.check(GetParam().batch, call());
  record_fault("a thread of a rank killed", kThreads, 1,
               "named fault; its own rank knows too; right results after recover");
}

TEST_P(EngineDeath, TheFirstCallHasItsOwnDeadline) {
  HarnessOptions own = options();
  own.world.first_deadline = 150ms;
  own.world.deadline = 60s;
  Harness harness(small_shape(2), own);
  Death death({Site::header_publish, 0});
  harness.set_hooks(&death);
  const auto& inputs = harness.make_inputs(GetParam().batch, call());
  HeldStreams held(harness.world());
  harness.enqueue(GetParam().batch, inputs, call());
  held.open();
  fault_text([&] { harness.world().synchronize(); });
  const auto report = harness.boxes()[1].status();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->record.epoch, 0u);
  EXPECT_EQ(report->record.peer, 0);
  EXPECT_STREQ(protocol::site_name(report->record.site), "header_poll");
  EXPECT_GE(std::chrono::nanoseconds(report->record.elapsed_ns), 150ms);
  EXPECT_LE(std::chrono::nanoseconds(report->record.elapsed_ns), 1150ms);
  harness.set_hooks(nullptr);
  record_fault("a rank killed in a box's first call", kThreads, 1,
               "named fault within the first call's deadline + 1 s");
}

}  // namespace
}  // namespace moetail::testing
