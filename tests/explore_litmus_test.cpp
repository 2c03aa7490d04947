// SPDX-License-Identifier: Apache-2.0
// What the explorer's memory allows and forbids, on programs of a few words; and for each of them all interleavings of a machine with
// store buffers, which must agree.
#include <gtest/gtest.h>

#include <set>

#include "protocol/sentinel.hpp"

#include "verify/explore/buffer_machine.hpp"
#include "verify/explore/graph_machine.hpp"
#include "verify/explore/search.hpp"

namespace moetail::explore {
namespace {

using protocol::kEmptyWord;
using Body = std::function<void(Machine&, Part&)>;

constexpr u64 kX = 0x100, kY = 0x200, kControl = 0x1000, kCounter = 0x1008;

struct Litmus : Program {
  std::vector<Body> bodies;  // [launch]
  /// `after`: launches that end before this one begins.
  int add(int call, Body body, std::vector<int> after = {}, int parts = 1) {
    launches.push_back({0, call, "launch", parts, std::move(after), {}});
    bodies.push_back(std::move(body));
    run = [this](Machine& machine, Part& part) {
      bodies[static_cast<std::size_t>(part.launch_id)](machine, part);
    };
    return static_cast<int>(launches.size()) - 1;
  }
  Litmus() {
    name_of = [](u64 address) { return "word " + std::to_string(address); };
    initial = [](u64 address) { return address >= kControl ? u64{0} : u64{kEmptyWord}; };
  }
};

u32 wait_for(Machine& machine, Part& part, u64 address) {
  u32 value = 0;
  for (machine.begin_look(part); !machine.poll(part, address, 1, &value); machine.begin_look(part))
    machine.wait(part, {});
  return value;
}

Body publishes(u64 address) {
  return [=](Machine& machine, Part& part) { machine.publish(part, address, 7); };
}
Body erases(u64 address) {
  return [=](Machine& machine, Part& part) { machine.erase(part, address); };
}
Body waits_for(u64 address) {
  return [=](Machine& machine, Part& part) { wait_for(machine, part, address); };
}

/// Every interleaving of the machine with store buffers.
bool buffers_find_a_violation(const Program& program, bool ordered_add = true) {
  Decisions decisions;
  long interleavings = 0;
  do {
    ++interleavings;
    BufferMachine machine(
        program, [&](int options) { return decisions.choose(options); }, ordered_add);
    machine.run();
    if (machine.violation()) return true;
  } while (decisions.advance());
  ::testing::Test::RecordProperty("interleavings", std::to_string(interleavings));
  return false;
}

Property graphs_find(const Program& program, bool ordered_add = true) {
  const SearchResult result = search(program, ordered_add, {});
  return result.violation ? result.violation->property : Property::none;
}

TEST(ExploreLitmus, WordThatIsItsOwnFlagNeedsNoOrder) {
  Litmus litmus;
  litmus.add(0, [](Machine& machine, Part& part) {
    machine.publish(part, kX, 1);
    machine.publish(part, kY, 2);
  });
  litmus.add(0, [](Machine& machine, Part& part) {
    if (wait_for(machine, part, kY) != 2 || wait_for(machine, part, kX) != 1)
      machine.fail(part, Property::output, "wrong value");
  });
  EXPECT_EQ(graphs_find(litmus), Property::none);
  EXPECT_FALSE(buffers_find_a_violation(litmus));
}

// A flag beside the data would not do: the data may come later.
TEST(ExploreLitmus, FlagSaysNothingOfOtherWords) {
  Litmus litmus;
  litmus.add(0, [](Machine& machine, Part& part) {
    machine.publish(part, kX, 1);
    machine.publish(part, kY, 2);
  });
  litmus.add(0, [](Machine& machine, Part& part) {
    wait_for(machine, part, kY);
    u32 value = 0;
    machine.poll(part, kX, 1, &value);
    if (value != 1) machine.fail(part, Property::output, "the data is not there yet");
  });
  EXPECT_EQ(graphs_find(litmus), Property::output);
  EXPECT_TRUE(buffers_find_a_violation(litmus));
}

TEST(ExploreLitmus, EndOfALaunchOrdersItsStores) {
  for (const bool is_ordered : {true, false}) {
    Litmus litmus;
    const int old_data = litmus.add(0, publishes(kX));
    if (is_ordered) {
      const int rearm = litmus.add(1, erases(kX), {old_data});
      litmus.add(2, publishes(kX), {rearm});
      litmus.add(2, waits_for(kX), {rearm});
    } else {
      const int rearm = litmus.add(1, erases(kX), {old_data});
      litmus.add(2, publishes(kX), {old_data});
      litmus.add(2, waits_for(kX), {rearm});
    }
    EXPECT_EQ(graphs_find(litmus), is_ordered ? Property::none : Property::erased);
    EXPECT_EQ(buffers_find_a_violation(litmus), !is_ordered);
  }
}

// The argument for three slots in one line: re-arm, end of launch, publication of Y, whose reader publishes X.
TEST(ExploreLitmus, OrderTravelsThroughWhatWasPolled) {
  for (const bool ends_before : {true, false}) {
    Litmus litmus;
    const int old_data = litmus.add(0, publishes(kX));
    if (ends_before) {
      const int rearm = litmus.add(1, erases(kX), {old_data});
      litmus.add(2, publishes(kY), {rearm});
    } else {
      litmus.add(2,
                 [](Machine& machine, Part& part) {
                   machine.erase(part, kX);
                   machine.publish(part, kY, 5);
                 },
                 {old_data});
    }
    const int peer = litmus.add(2,
                                [](Machine& machine, Part& part) {
                                  wait_for(machine, part, kY);
                                  machine.publish(part, kX, 8);
                                },
                                {old_data});
    litmus.add(2, waits_for(kX), {ends_before ? 1 : peer});
    EXPECT_EQ(graphs_find(litmus), ends_before ? Property::none : Property::erased);
    EXPECT_EQ(buffers_find_a_violation(litmus), !ends_before);
  }
}

TEST(ExploreLitmus, StaleWordIsSeenUntilItsReArmIsKnown) {
  for (const bool knows : {true, false}) {
    Litmus litmus;
    const int old_data = litmus.add(0, publishes(kX));
    const int rearm = litmus.add(1, erases(kX), {old_data});
    litmus.add(2, publishes(kX), {rearm});
    litmus.add(2, waits_for(kX), knows ? std::vector{rearm} : std::vector{old_data});
    EXPECT_EQ(graphs_find(litmus), knows ? Property::none : Property::stale);
    EXPECT_EQ(buffers_find_a_violation(litmus), !knows);
  }
}

TEST(ExploreLitmus, ReArmThatMayComeBeforeTheReaderLosesTheWord) {
  Litmus litmus;
  const int data = litmus.add(0, publishes(kX));
  litmus.add(0, waits_for(kX));
  litmus.add(1, erases(kX), {data});
  EXPECT_EQ(graphs_find(litmus), Property::erased);
  EXPECT_TRUE(buffers_find_a_violation(litmus));
}

// Two words stand for a line's four: all interleavings of four are too many.
TEST(ExploreLitmus, LineIsThereWhenEveryWordIs) {
  for (const int compared : {2, 1}) {
    Litmus litmus;
    litmus.add(0, [](Machine& machine, Part& part) {
      for (u64 word = 0; word < 2; ++word) machine.publish(part, kX + 4 * word, 1);
    });
    litmus.add(0, [compared](Machine& machine, Part& part) {
      u32 line[2];
      const auto is_there = [&] {
        machine.begin_look(part);
        machine.poll(part, kX, 2, line);
        return line[0] != kEmptyWord && (compared == 1 || line[1] != kEmptyWord);
      };
      while (!is_there()) machine.wait(part, {});
      for (u64 word = 0; word < 2; ++word) machine.reread(part, kX + 4 * word);
    });
    EXPECT_EQ(graphs_find(litmus), compared == 2 ? Property::none : Property::stale);
    EXPECT_EQ(buffers_find_a_violation(litmus), compared == 1);
  }
}

TEST(ExploreLitmus, EveryOrderOfArrivalIsTried) {
  for (const int parts : {2, 3}) {
    Litmus litmus;
    std::set<std::vector<u64>> orders;
    std::vector<u64> order(static_cast<std::size_t>(parts));
    litmus.add(
        0,
        [&](Machine& machine, Part& part) {
          order[static_cast<std::size_t>(part.index)] = machine.add(part, kCounter, 1);
          if (order[static_cast<std::size_t>(part.index)] + 1 == static_cast<u64>(parts))
            orders.insert(order);
        },
        {}, parts);
    const SearchResult result = search(litmus, false, {});
    EXPECT_TRUE(result.complete);
    EXPECT_EQ(result.executions, parts == 2 ? 2 : 6);
    EXPECT_EQ(orders.size(), parts == 2 ? 2u : 6u);
  }
}

// A look at a control word that another launch changes sees either value.
TEST(ExploreLitmus, LookThatRacesSeesBothValues) {
  Litmus litmus;
  std::set<u64> seen;
  litmus.add(0, [&](Machine& machine, Part& part) { seen.insert(machine.look(part, kControl)); });
  litmus.add(0, [](Machine& machine, Part& part) { machine.set(part, kControl, 3); });
  const SearchResult result = search(litmus, true, {});
  EXPECT_EQ(seen, (std::set<u64>{0, 3}));
  EXPECT_EQ(result.late_looks, 1);
  EXPECT_FALSE(result.complete) << "a race that was looked into from one side only";
}

TEST(ExploreLitmus, WaitThatNobodyServesIsFound) {
  Litmus litmus;
  litmus.add(0, waits_for(kX));
  EXPECT_EQ(graphs_find(litmus), Property::unending);
  EXPECT_TRUE(buffers_find_a_violation(litmus));
}

// The counter orders what comes before it only where it is acquire and release.
TEST(ExploreLitmus, OrderedCounterPassesOnWhatCameBefore) {
  for (const bool ordered : {true, false}) {
    Litmus litmus;
    const int old_data = litmus.add(0, publishes(kX));
    litmus.add(
        1,
        [](Machine& machine, Part& part) {
          if (part.index == 0) machine.erase(part, kX);
          const bool is_last = machine.add(part, kCounter, 1) == 1;
          if (part.index == 1 && is_last) machine.publish(part, kX, 9);
        },
        {old_data}, 2);
    EXPECT_EQ(graphs_find(litmus, ordered), ordered ? Property::none : Property::erased);
  }
}

}  // namespace
}  // namespace moetail::explore
