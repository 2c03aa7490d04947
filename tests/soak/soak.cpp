// SPDX-License-Identifier: Apache-2.0
// The soak of the CPU engine with threads: calls of every mode at small shapes over 1 to 16 ranks, changing batches, forms and layers, random
// stalls, every output bit compared. Prints progress on standard error and one JSON line on standard output; exit status 1 where a call was
// lost.
//
// moetail_soak [--calls N] [--seed N] [--plant none|bit|death] [--commit TEXT]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tests/soak/soak_group.hpp"

namespace moetail::testing {
namespace {

using Clock = std::chrono::steady_clock;

/// One configuration and its share of the calls, in percent.
struct Part {
  int ranks;
  int clusters;  ///< threads a rank
  bool own_copies;
  std::uint64_t percent;
};
constexpr Part kParts[] = {{1, 1, false, 10}, {1, 3, true, 5},   {2, 1, false, 20}, {2, 2, true, 20},
                           {4, 1, true, 15},  {4, 2, false, 10}, {8, 1, false, 8},  {8, 1, true, 7},
                           {16, 1, false, 3}, {16, 1, true, 2}};

struct Arguments {
  std::uint64_t calls = 1'000'000;
  std::uint64_t seed = 1;
  Plant plant = Plant::none;
  std::string commit = "unknown";
};

[[noreturn]] void usage(std::string_view wrong) {
  fmt::print(
      stderr,
      "moetail_soak: {}: accepted is [--calls N] [--seed N] [--plant none|bit|death] [--commit TEXT]\n",
      wrong);
  std::exit(2);
}

std::uint64_t number(const char* text) {
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(text, &end, 10);
  if (end == text || *end != '\0' || *text == '-') usage(text);
  return value;
}

Arguments read_arguments(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (i + 1 == argc) usage(flag);
    const std::string_view value = argv[i + 1];
    if (flag == "--calls") {
      arguments.calls = number(argv[i + 1]);
    } else if (flag == "--seed") {
      arguments.seed = number(argv[i + 1]);
    } else if (flag == "--commit") {
      arguments.commit = value;
    } else if (flag == "--plant" && (value == "none" || value == "bit" || value == "death")) {
      arguments.plant = value == "bit" ? Plant::bit : value == "death" ? Plant::death : Plant::none;
    } else {
      usage(flag);
    }
  }
  if (arguments.calls == 0) usage("--calls 0");
  return arguments;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[16] = {};
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
  return text;
}

int soak(const Arguments& arguments) {
  constexpr std::uint64_t kStep = 2'000;  // calls between two looks at the clock
  constexpr auto kProgressEvery = std::chrono::seconds(10);
  const auto begin = Clock::now();
  auto last_progress = begin;
  SoakCount total;
  nlohmann::json by_ranks = nlohmann::json::object();
  std::uint64_t planned = 0;
  for (const Part& part : kParts) {
    // The last part takes what rounding has left.
    planned =
        &part == std::end(kParts) - 1 ? arguments.calls : planned + arguments.calls * part.percent / 100;
    const std::uint64_t wanted = planned - total.calls;
    if (wanted == 0) continue;
    SoakOptions options{part.ranks, part.ranks * part.clusters, part.own_copies,
                        arguments.seed + static_cast<std::uint64_t>(&part - kParts)};
    options.pool = std::clamp<std::uint64_t>(wanted / 4, 4, options.pool);
    // A control waits for it; nothing else may come near it, on a busy machine either.
    if (arguments.plant == Plant::death) options.deadline = std::chrono::seconds(1);
    SoakGroup group(options);
    const bool holds_plant = arguments.plant != Plant::none && part.ranks == 4 && part.clusters == 2;
    if (holds_plant) {
      group.run(wanted, arguments.plant);
    } else {
      for (std::uint64_t done = 0; done < wanted; done += kStep) {
        group.run(std::min(kStep, wanted - done));
        if (Clock::now() - last_progress < kProgressEvery) continue;
        last_progress = Clock::now();
        fmt::print(stderr, "soak: {} of {} calls, T={}, lost {}\n", total.calls + group.count().calls,
                   arguments.calls, part.ranks, total.lost + group.count().lost);
      }
    }
    const SoakCount& count = group.count();
    total.calls += count.calls;
    total.lost += count.lost;
    total.faults += count.faults;
    total.stalls += count.stalls;
    if (total.first_loss.empty()) total.first_loss = count.first_loss;
    auto& of_ranks = by_ranks[std::to_string(part.ranks)];
    of_ranks = of_ranks.is_null() ? count.calls : of_ranks.get<std::uint64_t>() + count.calls;
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const nlohmann::json line = {{"soak", "cpu threads"},
                               {"calls", total.calls},
                               {"seed", arguments.seed},
                               {"lost", total.lost},
                               {"faults", total.faults},
                               {"stalls", total.stalls},
                               {"first_loss", total.first_loss},
                               {"calls_by_ranks", by_ranks},
                               {"seconds", static_cast<std::uint64_t>(seconds * 10) / 10.0},
                               {"date", today()},
                               {"commit", arguments.commit}};
  fmt::print("{}\n", line.dump());
  return total.lost == 0 && total.faults == 0 ? 0 : 1;
}

}  // namespace
}  // namespace moetail::testing

int main(int argc, char** argv) {
  try {
    return moetail::testing::soak(moetail::testing::read_arguments(argc, argv));
  } catch (const std::exception& error) {
    fmt::print(stderr, "moetail_soak: {}\n", error.what());
    return 1;
  }
}
