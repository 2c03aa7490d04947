// SPDX-License-Identifier: Apache-2.0
// One test for each safeguard of src/protocol/safeguards.hpp that concerns words, slots and records; those of the order of launches are in
// safeguard_order_test.cpp. ctest runs them as they are, and once more in a build that leaves the safeguard out, where the named
// test has to fail (control.* in tests/CMakeLists.txt). Every schedule here is forced, not hoped for.
#include "tests/safeguard_testing.hpp"

#include <array>

namespace moetail::testing {
namespace {

using protocol::Line;
using protocol::Region;
using protocol::Site;
using namespace std::chrono_literals;

// A user's partial, shared row or polled row may hold the sentinel word. Published as it is, nobody would ever see it arrive.
TEST(Safeguard, SentinelCleanup) {
  Harness harness(shape_of(2), with_deadline());
  CallOptions options;
  options.inputs.form = Form::partial;
  options.inputs.specials = {verify::special::kSentinel, 0.05};
  const auto& inputs = harness.make_inputs(2, options);
  const Outputs& outputs = harness.enqueue(2, inputs, options);
  expect_no_fault(harness.world());
  expect_rows(harness, 2, inputs, options, outputs);
}

/// Rank 0 is slow to re-arm after its output of call 1 has left; rank 1 has that output and publishes call 2 meanwhile.
void rearm_late() {
  struct SlowRearm : cpu::Hooks {
    std::atomic<bool> peer_published = false;
    bool at(const cpu::SiteEvent& event) override {
      if (event.rank == 1 && event.epoch == 2 && event.site == Site::header_poll) peer_published.store(true);
      if (event.rank == 0 && event.epoch == 1 && event.site == Site::rearm) {
        EXPECT_TRUE(wait_for(peer_published, 5000ms))
            << "rank 1 never got ahead: the schedule was not reached";
      }
      return true;
    }
  } hooks;
  Harness harness(shape_of(2), with_deadline());
  harness.set_hooks(&hooks);
  run_four_calls(harness, {});
}

TEST(Safeguard, ThirdSlot) {
  rearm_late();
}

// The slot that rank 1 has published into is the one after call 1's.
TEST(Safeguard, RearmSlot) {
  rearm_late();
}

/// Tells when rank 0 has taken the latents of call 3.
struct PastLatents : cpu::Hooks {
  std::atomic<bool> reached = false;
  bool at(const cpu::SiteEvent& event) override {
    if (event.rank == 0 && event.epoch == 3 && event.site == Site::shared_poll) reached.store(true);
    return true;
  }
};

/// Four rows, then one, then four again in the slot of the first call. Rank 1 holds its rows back from `first_late` on: rank 0 must
/// wait for them, not take what call 0 left there.
void shrink_and_grow(Harness& harness, const PastLatents& hooks, int first_late) {
  CallOptions options;
  options.mode = Mode::publish;
  for (int batch : {4, 1, 1}) {
    options.seed += 1;
    harness.check(batch, options);
  }
  run_published_call(harness,
                     [&](int rank, int token, const PublishTargets& targets, std::span<const Bf16> row) {
                       if (rank == 1 && token == first_late) wait_for(hooks.reached, kPatience);
                       publish_partial(targets, token, row);
                     });
}

TEST(Safeguard, RearmSize) {
  PastLatents hooks;
  Harness harness(shape_of(2), with_deadline());
  harness.set_hooks(&hooks);
  shrink_and_grow(harness, hooks, 1);
}

// In call 1 each rank's second cluster re-arms after the first one has ended and left the call's record. Rows 2 and 3 are its part.
TEST(Safeguard, TwoRecords) {
  struct LateCluster : PastLatents {
    Harness* harness = nullptr;
    bool at(const cpu::SiteEvent& event) override {
      if (event.cluster == 1 && event.epoch == 1 && event.site == Site::rearm) {
        const auto& view = harness->state(event.rank).view;
        const protocol::u64 mine =
            protocol::pack_record({1, protocol::dirtied_regions(Mode::publish, false, false, false)});
        const std::atomic_ref<protocol::u64> record(*view.control(protocol::record_word(1)));
        EXPECT_TRUE(wait_until_true([&] { return record.load() == mine; }, 5000ms))
            << "the other cluster never left its record: the schedule was not reached";
      }
      return PastLatents::at(event);
    }
  } hooks;
  Harness harness(shape_of(2), with_deadline());
  hooks.harness = &harness;
  harness.set_hooks(&hooks);
  shrink_and_grow(harness, hooks, 2);
}

// Rank 1's lines arrive in pieces, as a GPU's may: the first word of each, and the others when rank 0 has gone on or long after.
TEST(Safeguard, EveryWord) {
  PastLatents hooks;
  Harness harness(shape_of(2), with_deadline());
  harness.set_hooks(&hooks);
  CallOptions options;
  options.mode = Mode::publish;
  for (int call = 0; call < 3; ++call) harness.check(2, options);
  run_published_call(
      harness, [&](int rank, int token, const PublishTargets& targets, std::span<const Bf16> row) {
        if (rank == 0) return publish_partial(targets, token, row);
        const auto put = [&](int first_word, int end_word) {
          for (int peer = 0; peer < 2; ++peer) {
            Line* to = targets.box.at<Line>(peer, Region::latent, protocol::slot_of(3), 1, token);
            const auto* from = reinterpret_cast<const Line*>(row.data());
            for (int line = 0; line < protocol::lines_of(harness.shape().latent); ++line)
              for (int word = first_word; word < end_word; ++word)
                std::atomic_ref<protocol::u32>(to[line].word[word])
                    .store(protocol::cleaned(from[line].word[word]), std::memory_order_release);
          }
        };
        put(0, 1);
        if (token == 0) wait_for(hooks.reached, kPatience);
        put(1, 4);
      });
}

// Rank 1 is late in its second call, until rank 0 has gone on with what it found or for long.
TEST(Safeguard, EpochAdvance) {
  struct LateSecondCall : cpu::Hooks {
    std::array<std::atomic<int>, 2> calls = {};  // [rank]
    std::atomic<bool> is_past = false;
    bool at(const cpu::SiteEvent& event) override {
      if (event.cluster != 0) return true;
      auto& count = calls[static_cast<std::size_t>(event.rank)];
      if (event.site == Site::epoch) count.fetch_add(1);
      if (event.rank == 0 && count.load() == 2 && event.site == Site::shared_poll) is_past.store(true);
      if (event.rank == 1 && count.load() == 2 && event.site == Site::header_publish)
        wait_for(is_past, kPatience);
      return true;
    }
  } hooks;
  Harness harness(shape_of(2), with_deadline());
  harness.set_hooks(&hooks);
  run_four_calls(harness, {});
}

// fp32 addition is not associative: 2^24 + 1 - 2^24 + 1 is 1 in rank order and 2 from rank 1 on.
TEST(Safeguard, RankOrder) {
  Harness harness(shape_of(4), with_deadline());
  CallOptions options;
  options.inputs.form = Form::partial;
  auto& inputs = const_cast<verify::CallInputs&>(harness.make_inputs(1, options));
  constexpr Bf16 kAddends[4] = {0x4B80, 0x3F80, 0xCB80, 0x3F80};  // 2^24, 1, -2^24, 1
  for (std::size_t rank = 0; rank < 4; ++rank) {
    std::fill(inputs.arrays[rank].partial.begin(), inputs.arrays[rank].partial.end(), Bf16{0});
    std::fill(inputs.arrays[rank].shared.begin(), inputs.arrays[rank].shared.end(), kAddends[rank]);
  }
  const Outputs& outputs = harness.enqueue(1, inputs, options);
  expect_no_fault(harness.world());
  for (const auto& row : outputs)
    for (Bf16 value : row)
      ASSERT_EQ(value, 0x3F80) << "a sum of the shared partials that is not in rank order";
}

}  // namespace
}  // namespace moetail::testing
