// SPDX-License-Identifier: Apache-2.0
// A rank, or one cluster of a rank, that is delayed by less than the deadline at any site changes nothing:
// not one bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/expect_error.hpp"
#include "tests/harness.hpp"
#include "tests/hooks.hpp"
#include "tests/record.hpp"
#include "tests/variants.hpp"

namespace moetail::testing {
namespace {

using protocol::Site;
using namespace std::chrono_literals;

class EngineStall : public ::testing::TestWithParam<Variant> {
 protected:
  static HarnessOptions options(int threads = 0) {
    HarnessOptions options;
    options.policy = kSharePolicy;
    options.world.threads = threads;
    return options;
  }
  CallOptions call() const {
    CallOptions call;
    call.mode = GetParam().mode;
    call.inputs.form = Form::permuted;
    call.inputs.residual = true;
    return call;
  }
};
INSTANTIATE_TEST_SUITE_P(Modes, EngineStall, ::testing::ValuesIn(variants()), variant_name);

/// Three calls without a wait between them, the same every time. Returns every rank's rows of each.
std::vector<Outputs> three_calls(Harness& harness, int batch, CallOptions call) {
  std::vector<const Outputs*> made;
  for (int i = 0; i < 3; ++i) {
    call.seed = static_cast<std::uint64_t>(i + 1);
    const auto& inputs = harness.make_inputs(batch, call);
    made.push_back(&harness.enqueue(batch, inputs, call));
  }
  harness.world().synchronize();
  std::vector<Outputs> outputs;
  for (const Outputs* one : made) outputs.push_back(*one);
  return outputs;
}

TEST_P(EngineStall, TheSitesOfACallAreTheOnesThatItsModeHas) {
  Harness harness(small_shape(2), options());
  SiteLog log;
  harness.set_hooks(&log);
  harness.check(GetParam().batch, call());
  for (int site = 1; site < protocol::kSites; ++site) {
    const bool expected =
        std::count(GetParam().sites.begin(), GetParam().sites.end(), static_cast<Site>(site)) > 0;
    EXPECT_EQ(log.passed(static_cast<Site>(site)), expected) << protocol::site_name(static_cast<Site>(site));
  }
  harness.set_hooks(nullptr);
}

TEST_P(EngineStall, ARankDelayedAtAnySite) {
  Harness harness(small_shape(4), options());
  harness.check(GetParam().batch, call());
  const auto reference = three_calls(harness, GetParam().batch, call());
  std::uint64_t epoch = 4;
  for (Site site : GetParam().sites) {
    for (int rank : {0, 3}) {
      SCOPED_TRACE(fmt::format("rank {} at {}", rank, protocol::site_name(site)));
      Stall stall({site, rank, Where::kAny, epoch + 1}, 12ms);
      harness.set_hooks(&stall);
      EXPECT_EQ(three_calls(harness, GetParam().batch, call()), reference);
      EXPECT_GT(stall.stalls(), 0);
      harness.set_hooks(nullptr);
      epoch += 3;
    }
  }
  record_fault("a rank delayed under the deadline, at each site", kThreads, 2 * GetParam().sites.size(),
               "the same bits as without");
}

// The control of the case above: the same hook at the same kind of site, but for longer than the deadline.
TEST_P(EngineStall, ARankDelayedBeyondTheDeadlineIsAFault) {
  constexpr auto kDeadline = 500ms;
  HarnessOptions impatient = options();
  impatient.world.deadline = impatient.world.first_deadline = kDeadline;
  Harness harness(small_shape(2), impatient);
  Stall stall({Site::header_publish, 1}, 3 * kDeadline);
  harness.set_hooks(&stall);
  harness.enqueue(GetParam().batch, harness.make_inputs(GetParam().batch, call()), call());
  expect_error(Code::fault, {"header_poll", "waited for rank 1"}, [&] { harness.world().synchronize(); });
  EXPECT_EQ(stall.stalls(), 1);
  harness.set_hooks(nullptr);
  record_fault("a rank frozen beyond the deadline before its first word", kThreads, 1,
               "named fault (rank, site)");
}

TEST_P(EngineStall, OneClusterDelayedAtAnySite) {
  Harness harness(small_shape(2), options(6));
  harness.check(GetParam().batch, call());
  const auto reference = three_calls(harness, GetParam().batch, call());
  std::uint64_t epoch = 4;
  for (Site site : GetParam().sites) {
    // The consumer is one thread.
    const bool consumes = site == Site::consume || site == Site::consume_rearm;
    for (int cluster : {0, 2}) {
      if (consumes && cluster != 0) continue;
      SCOPED_TRACE(fmt::format("cluster {} of rank 1 at {}", cluster, protocol::site_name(site)));
      Stall stall({site, 1, cluster, epoch + 1}, 12ms);
      harness.set_hooks(&stall);
      EXPECT_EQ(three_calls(harness, GetParam().batch, call()), reference);
      EXPECT_GT(stall.stalls(), 0);
      harness.set_hooks(nullptr);
      epoch += 3;
    }
  }
  record_fault("a thread of a rank delayed under the deadline, at each site", kThreads,
               2 * GetParam().sites.size() - 2, "the same bits as without");
}

TEST_P(EngineStall, TheSideStreamDelayed) {
  CallOptions pushed = call();
  pushed.side_push = true;
  Harness harness(small_shape(4), options());
  harness.check(GetParam().batch, pushed);
  const auto reference = three_calls(harness, GetParam().batch, call());
  for (Site site : {Site::header_publish, Site::shared_push}) {
    Stall stall({site, 2}, 8ms);
    harness.set_hooks(&stall);
    EXPECT_EQ(three_calls(harness, GetParam().batch, pushed), reference);
    EXPECT_GT(stall.stalls(), 2);
    harness.set_hooks(nullptr);
  }
  record_fault("a rank's side stream delayed", kThreads, 2, "the same bits as without");
}

TEST_P(EngineStall, RandomDelaysAtRandomSites) {
  for (int threads : {0, 8}) {
    HarnessOptions harness_options = options(threads);
    harness_options.own_copies = threads == 0;
    Harness harness(small_shape(4), harness_options);
    const auto reference = three_calls(harness, GetParam().batch, call());
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      SCOPED_TRACE(fmt::format("seed {}, {} threads", seed, threads));
      RandomStalls stalls(seed, 2000us);
      harness.set_hooks(&stalls);
      EXPECT_EQ(three_calls(harness, GetParam().batch, call()), reference);
      EXPECT_GT(stalls.stalls(), 0);
      harness.set_hooks(nullptr);
    }
  }
  record_fault("random delays at random sites", kThreads, 16, "the same bits as without");
}

// A user's own publishing kernel that is slow before every row.
TEST(EngineStalls, SlowPublishersOfAUser) {
  for (const Variant& variant : variants()) {
    if (variant.mode != Mode::publish && variant.mode != Mode::twoshot) continue;
    SCOPED_TRACE(variant.name);
    HarnessOptions harness_options;
    harness_options.policy = kSharePolicy;
    Harness harness(small_shape(2), harness_options);
    CallOptions call;
    call.mode = variant.mode;
    const auto reference = three_calls(harness, variant.batch, call);
    call.inputs.form = Form::published;
    Stall stall({variant.mode == Mode::twoshot ? Site::twoshot_push : Site::latent_publish, 1}, 4ms);
    harness.set_hooks(&stall);
    EXPECT_EQ(three_calls(harness, variant.batch, call), reference);
    EXPECT_EQ(stall.stalls(), 3 * variant.batch);
    harness.set_hooks(nullptr);
  }
  record_fault("a user's publishing kernel delayed before every row", kThreads, 2,
               "the same bits as without");
}

}  // namespace
}  // namespace moetail::testing
