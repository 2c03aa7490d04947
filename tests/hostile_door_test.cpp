// SPDX-License-Identifier: Apache-2.0
// A caller that knows no rules: random operations in random order with random arguments, from one thread and from several. Each is served or
// refused by an Error of a documented code, none hangs or brings the process down, and after World::recover the group computes as before.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "tests/c_api_testing.hpp"
#include "tests/harness.hpp"
#include "tests/lone_rank.hpp"
#include "tests/record.hpp"
#include "tests/variants.hpp"

namespace moetail::testing {
namespace {

using namespace std::chrono_literals;

constexpr int kDoorRanks = 2;
constexpr auto kShortDeadline = 20ms;

/// The group that is misused, with what a caller may have kept from earlier operations.
class Misused {
 public:
  Misused() : harness_(small_shape(kDoorRanks), options()) {
    reference_ = harness_.check(3, {});
    set_deadline(harness_, kShortDeadline);
    const auto elements = static_cast<std::size_t>(harness_.shape().capacity) *
                          static_cast<std::size_t>(harness_.shape().hidden);
    shared_.resize(elements);
    for (auto& rows : destinations_) rows.resize(elements);
  }

  /// One operation of a random kind. Returns what it was, for the log.
  std::string operate() {
    const int rank = *rc::gen::inRange(0, kDoorRanks);
    CallOptions options;
    options.mode = *rc::gen::element(Mode::automatic, Mode::front, Mode::front_poll, Mode::publish,
                                     Mode::twoshot, static_cast<Mode>(7));
    options.layer = *rc::gen::inRange(0, 2);
    const int batch = *rc::gen::weightedOneOf<int>(
        {{6, rc::gen::inRange(1, 4)}, {1, rc::gen::element(0, 8, 9, -1, 65536)}});
    const int operation = *rc::gen::inRange(0, 9);
    const PreparedTail& tail = harness_.tail(rank, options.layer);
    const auto box = static_cast<std::size_t>(rank);
    std::string outcome = "served";
    try {
      switch (operation) {
        case 0: tail.push(shared_, batch, options.mode); break;
        case 1: tail.push(shared_, batch, options.mode, harness_.world().side_stream(1)); break;
        case 2: static_cast<void>(tail.publish(batch, options.mode)); break;
        case 3: static_cast<void>(tail.poll_slots(batch, options.mode)); break;
        case 4: run(batch, options); break;
        case 5:
          views_[box] =
              enqueue_rank(harness_, rank, std::max(1, std::min(batch, 8)), inputs(batch, options), options);
          break;
        case 6:
          harness_.boxes()[box].take(views_[static_cast<std::size_t>(*rc::gen::inRange(0, kDoorRanks))],
                                     destinations_[box]);
          break;
        case 7: harness_.boxes()[box].abort(); break;
        default: harness_.world().recover(harness_.boxes()); break;
      }
    } catch (const Error& error) {
      const bool documented = error.code() != Code::internal && error.code() != Code::ok;
      RC_ASSERT(documented);
      outcome = error.what();
    }
    return fmt::format("operation {} rank {} B={} mode {} layer {}: {}", operation, rank, batch,
                       static_cast<int>(options.mode), options.layer, outcome);
  }

  void expect_right_after_recovery() {
    try {
      harness_.world().synchronize();  // whatever hangs ends by its deadline
    } catch (const Error& error) {
      RC_ASSERT(error.code() == Code::fault);
    }
    harness_.world().recover(harness_.boxes());
    set_deadline(harness_, kNoHurry);
    RC_ASSERT(harness_.run(3, {})[0] == reference_);
  }

 private:
  static HarnessOptions options() {
    HarnessOptions options;
    options.layers = 2;
    options.world.deadline = options.world.first_deadline = kNoHurry;
    return options;
  }
  const verify::CallInputs& inputs(int batch, const CallOptions& options) {
    return harness_.make_inputs(std::max(1, std::min(batch, 8)), options);
  }
  void run(int batch, const CallOptions& options) {
    std::vector<RankCall> calls;
    for (int rank = 0; rank < kDoorRanks; ++rank) {
      const auto& given = inputs(batch, options);
      Call call;
      call.batch = batch;
      call.mode = options.mode;
      call.shared = given.arrays[static_cast<std::size_t>(rank)].shared;
      call.routed =
          Routed::expanded(given.arrays[static_cast<std::size_t>(rank)].rows,
                           std::span<const float>(given.arrays[static_cast<std::size_t>(rank)].weights_fp32));
      calls.push_back({&harness_.tail(rank, options.layer), call});
    }
    const auto made = harness_.world().run(calls);
    std::copy(made.begin(), made.end(), views_.begin());
  }

  Harness harness_;
  std::vector<Bf16> reference_, shared_;
  std::array<std::vector<Bf16>, kDoorRanks> destinations_;
  std::array<OutView, kDoorRanks> views_;
};

RC_GTEST_PROP(HostileDoor, AnyOperationsInAnyOrder, ()) {
  static std::uint64_t tries = 0;
  Misused group;
  const int operations = *rc::gen::inRange(1, 30);
  for (int i = 0; i < operations; ++i) RC_LOG(group.operate());
  group.expect_right_after_recovery();
  tries += static_cast<std::uint64_t>(operations);
  record_fault("C++ door: any operations in any order (RapidCheck)", kThreads, tries,
               "served or refused by name; right results after recover");
}

// Several threads at one group of the C door. One that finds a box in use is told so; the handles stay live meanwhile.
TEST(HostileDoor, ThreadsAtOneGroupOfTheCDoor) {
  moetail_world_options options = MOETAIL_WORLD_OPTIONS_INIT;
  options.deadline_ms = options.first_deadline_ms = 1000;
  CGroup group(kDoorRanks, &options);
  const auto calls = group.calls(2);
  std::array<std::atomic<std::uint64_t>, 16> seen{};
  constexpr int kThreadCount = 4, kRounds = 300;
  std::vector<std::thread> threads;
  threads.reserve(kThreadCount);
  for (int thread = 0; thread < kThreadCount; ++thread)
    threads.emplace_back([&, thread] {
      std::vector<moetail_out_view> views(kDoorRanks, moetail_out_view MOETAIL_OUT_VIEW_INIT);
      Rows row(2 * 256);
      for (int round = 0; round < kRounds; ++round) {
        const auto rank = static_cast<std::size_t>((round + thread) % kDoorRanks);
        moetail_publish_targets targets = MOETAIL_PUBLISH_TARGETS_INIT;
        moetail_fault fault = MOETAIL_FAULT_INIT;
        moetail_status status = MOETAIL_OK;
        switch ((round * 7 + thread) % 6) {
          case 0: status = moetail_world_run(group.world, calls.data(), views.data(), kDoorRanks); break;
          case 1:
            status = moetail_box_take(group.boxes[rank], &views[rank], row.data(), row.size(), nullptr);
            break;
          case 2:
            status =
                moetail_tail_push(group.tails[rank], group.shared.data(), group.shared.size(), 2, 0, nullptr);
            break;
          case 3: status = moetail_tail_publish(group.tails[rank], 2, MOETAIL_MODE_PUBLISH, &targets); break;
          case 4: status = moetail_box_fault(group.boxes[rank], &fault); break;
          default: status = moetail_world_synchronize(group.world); break;
        }
        seen[static_cast<std::size_t>(status)].fetch_add(1);
      }
      moetail_world_synchronize(group.world);  // what is under way writes to `row`
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(seen[MOETAIL_INTERNAL], 0u);
  EXPECT_GT(seen[MOETAIL_OK], 0u);
  EXPECT_GT(
      seen[MOETAIL_CALL_ORDER] + seen[MOETAIL_BUSY] + seen[MOETAIL_FAULT] + seen[MOETAIL_INVALID_ARGUMENT],
      0u);
  moetail_world_synchronize(group.world);
  EXPECT_OK(moetail_world_recover(group.world, group.boxes.data(), kDoorRanks));
  EXPECT_OK(group.run(calls));
  group.take();
  EXPECT_OK(moetail_world_synchronize(group.world));
  EXPECT_EQ(group.out[0], group.out[1]);
  EXPECT_NE(group.out[0][0], 0x7FFF);
  record_fault("C door: several threads at one group", kThreads, kThreadCount * kRounds,
               "served or refused (busy, call order, fault); right results after recover");
}

}  // namespace
}  // namespace moetail::testing
