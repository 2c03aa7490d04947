// SPDX-License-Identifier: Apache-2.0
#include "verify/explore/cases.hpp"

#include <utility>

namespace moetail::explore {
namespace {

enum class Order { cpu, cpu_own, gpu, gpu_own };

/// The order inside a launch and what ranks share: the CPU engine's, the same without its common copy, the kernels', or that of a front
/// kernel for small batches.
Config ordered(Order order) {
  Config config;
  config.common = order == Order::cpu;
  config.rearms_early = order == Order::gpu;
  config.ordered_add = order == Order::cpu || order == Order::cpu_own;
  config.sums_own = order == Order::gpu_own;
  return config;
}

// Rows that the third call does not touch come back in the slot of the first.
constexpr int kBatches[] = {2, 1, 1, 2};

Config calls_of(const CallPlan& plan, Order order) {
  Config config = ordered(order);
  for (const int batch : kBatches) {
    config.calls.push_back(plan);
    config.calls.back().batch = batch;
  }
  return config;
}

Config mixed_modes(Order order) {
  Config config = ordered(order);
  config.calls = {{Mode::front, 2, false, false},
                  {Mode::publish, 1, true, true},
                  {Mode::twoshot, 2, false, true},
                  {Mode::front_poll, 1, false, false}};
  return config;
}

Config mismatch(Order order) {
  Config config = calls_of({Mode::front, 1, false, false}, order);
  config.odd_call = 1;
  config.fault = protocol::FaultKind::header_mismatch;
  return config;
}

Config early(CallPlan plan) {
  Config config = calls_of(plan, Order::gpu);
  config.waves_early = true;
  return config;
}

/// A side push of two blocks, cut so that each stores to every rank, its own included, or each to one owner alone.
Config pushed_by_blocks(CallPlan plan, bool by_owner) {
  Config config = calls_of(plan, Order::gpu);
  config.push_blocks = 2;
  config.cuts_push_by_owner = by_owner;
  return config;
}

Config resized(Config config, int ranks, int blocks, std::size_t calls) {
  config.ranks = ranks;
  config.blocks = blocks;
  const std::vector<CallPlan> cycle = config.calls;
  config.calls.clear();
  for (std::size_t call = 0; call < calls; ++call) config.calls.push_back(cycle[call % cycle.size()]);
  return config;
}

constexpr CallPlan kFront{Mode::front, 1, false, false};
constexpr CallPlan kFrontPoll{Mode::front_poll, 1, false, false};
constexpr CallPlan kPublish{Mode::publish, 1, false, false};
constexpr CallPlan kPublishSide{Mode::publish, 1, false, true};
constexpr CallPlan kSharing{Mode::publish, 1, true, true};
constexpr CallPlan kTwoshot{Mode::twoshot, 1, false, false};
constexpr CallPlan kTwoshotSide{Mode::twoshot, 1, false, true};

std::vector<Case> properties() {
  std::vector<Case> cases;
  const std::pair<const char*, CallPlan> plans[] = {{"front", kFront},
                                                    {"front_poll", kFrontPoll},
                                                    {"publish", kPublish},
                                                    {"publish_side", kPublishSide},
                                                    {"sharing", kSharing},
                                                    {"twoshot", kTwoshot},
                                                    {"twoshot_side", kTwoshotSide}};
  const std::pair<const char*, Order> orders[] = {
      {"cpu", Order::cpu}, {"cpu_own", Order::cpu_own}, {"gpu", Order::gpu}};
  for (const auto& [order_name, order] : orders) {
    const std::string suffix = std::string(".") + order_name;
    for (const auto& [name, plan] : plans) cases.push_back({name + suffix, "", calls_of(plan, order)});
    cases.push_back({"mixed" + suffix, "", mixed_modes(order)});
    cases.push_back({"mismatch" + suffix, "", mismatch(order)});
  }
  cases.push_back({"front.gpu_own", "", calls_of(kFront, Order::gpu_own)});
  cases.push_back({"mixed.gpu_own", "", mixed_modes(Order::gpu_own)});
  cases.push_back({"early_publish.gpu", "", early(kPublishSide)});
  cases.push_back({"early_sharing.gpu", "", early(kSharing)});
  cases.push_back({"early_twoshot.gpu", "", early(kTwoshot)});
  cases.push_back({"push_blocks.gpu", "", pushed_by_blocks(kPublishSide, false)});
  cases.push_back({"push_blocks_twoshot.gpu", "", pushed_by_blocks(kTwoshotSide, false)});
  cases.push_back({"push_cut.publish_side.gpu", "", pushed_by_blocks(kPublishSide, true)});
  cases.push_back({"push_cut.twoshot_side.gpu", "", pushed_by_blocks(kTwoshotSide, true)});
  const auto add_large = [&](const char* name, const Config& config, int ranks, int blocks,
                             std::size_t calls) {
    cases.push_back({name, "", resized(config, ranks, blocks, calls), true});
  };
  add_large("front.gpu.long", calls_of(kFront, Order::gpu), 2, 2, 6);
  add_large("mixed.cpu.long", mixed_modes(Order::cpu), 2, 2, 6);
  add_large("publish_side.gpu.three_ranks", calls_of(kPublishSide, Order::gpu), 3, 2, 4);
  add_large("twoshot_side.gpu.three_ranks", calls_of(kTwoshotSide, Order::gpu), 3, 2, 4);
  add_large("front.cpu.three_ranks", calls_of(kFront, Order::cpu), 3, 2, 4);
  return cases;
}

std::vector<Case> controls(const std::vector<Case>& from) {
  struct Control {
    const char* safeguard;
    std::vector<const char*> cases;
  };
  const Control table[] = {
      {"third_slot",
       {"front.cpu", "front.gpu", "front.gpu_own", "front_poll.gpu", "publish_side.gpu", "twoshot_side.gpu"}},
      {"rearm_slot", {"front.cpu", "front.gpu", "front_poll.gpu", "publish_side.gpu", "twoshot_side.gpu"}},
      {"rearm_size", {"front.cpu", "front.gpu", "front_poll.gpu", "publish_side.gpu", "twoshot_side.gpu"}},
      {"dependency_wait", {"front.gpu", "front_poll.gpu", "publish_side.gpu", "twoshot_side.gpu"}},
      {"every_word", {"front.cpu", "front.gpu", "front_poll.gpu", "sharing.gpu", "twoshot_side.gpu"}},
      {"epoch_advance", {"front.cpu", "front.gpu", "front_poll.gpu", "publish_side.gpu", "twoshot_side.gpu"}},
      {"push_order", {"publish_side.cpu", "publish_side.gpu", "sharing.gpu", "twoshot_side.gpu"}},
      {"consumer_order",
       {"front.cpu", "front.gpu", "front_poll.gpu", "publish_side.gpu", "twoshot_side.gpu"}},
      {"two_records", {"front.cpu", "front_poll.cpu", "publish_side.cpu", "twoshot_side.cpu"}},
      {"header_check", {"mismatch.cpu", "mismatch.cpu_own", "mismatch.gpu"}},
      {"sentinel_cleanup", {"front.gpu", "front_poll.gpu", "publish_side.gpu", "twoshot_side.gpu"}},
      {"rank_order", {"front.gpu", "front_poll.gpu", "publish_side.gpu", "twoshot_side.gpu"}},
      {"last_arrival", {"front.gpu_own", "publish_side.gpu", "sharing.gpu", "twoshot_side.gpu", "mixed.cpu"}},
  };
  std::vector<Case> cases;
  for (const Control& control : table)
    for (const char* name : control.cases)
      for (const Case& property : from)
        if (property.name == name)
          cases.push_back(
              {std::string(control.safeguard) + "." + name, control.safeguard, property.config, false});
  return cases;
}

}  // namespace

std::vector<Case> all_cases() {
  std::vector<Case> cases = properties();
  for (Case& control : controls(cases)) cases.push_back(std::move(control));
  return cases;
}

}  // namespace moetail::explore
