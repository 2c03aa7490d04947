// SPDX-License-Identifier: Apache-2.0
// The mode table: built-in defaults, or a JSON file.
#include "moetail/policy.hpp"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.hpp"

namespace moetail {
namespace {

constexpr std::uintmax_t kMostPolicyBytes = 1 << 20;  // a table has a hundred

constexpr const auto& kRankCounts = Policy::kRankCounts;

// One H200, K3 at T = 8, replay, multicast put, every launch from expert rows to output row counted, 2026-11-30 (docs/kernels.md, "What was
// measured"): front is ahead of the publishing kernel and the wave at every batch up to 128, and those are slower with shared sums than without. Other
// rank counts keep the starting table's limits of front, since they have not been measured; sharing has one limit for all.
constexpr Policy h200_table() {
  Policy policy;
  policy.front_up_to[3] = 128;
  policy.share_from = 129;
  return policy;
}

/// A value in a message. Not what is inside of an array or object: writing that out recurses as deep as the file cares to be.
std::string shown(const nlohmann::json& value) {
  return value.is_structured() ? fmt::format("an {}", value.type_name()) : value.dump();
}

int read_limit(const std::string& path, const std::string& key, const nlohmann::json& value, int least,
               int most = protocol::kMaxCapacity) {
  const auto accepted = fmt::format("an integer from {} to {}", least, most);
  if (!value.is_number_integer())
    base::bad_argument(fmt::format("{}: {}", path, key), shown(value), accepted);
  const auto number = value.get<std::int64_t>();
  if (number < least || number > most)
    base::bad_argument(fmt::format("{}: {}", path, key), shown(value), accepted);
  return static_cast<int>(number);
}

/// The place of the number that `key` spells in `numbers`. `name`: file and key above it.
template <std::size_t N>
std::size_t read_place(const std::string& name, const std::string& key, const std::array<int, N>& numbers) {
  for (std::size_t i = 0; i < N; ++i)
    if (std::to_string(numbers[i]) == key) return i;
  std::string keys;
  for (std::size_t i = 0; i < N; ++i)
    keys += fmt::format("{}\"{}\"", i == 0 ? "" : i + 1 == N ? " and " : ", ", numbers[i]);
  base::bad_argument(name, key, "the keys " + keys);
}

void check_object(const std::string& name, const nlohmann::json& value, const char* example) {
  if (!value.is_object())
    base::bad_argument(name, shown(value), fmt::format("an object such as {}", example));
}

int read_trigger(const std::string& name, const nlohmann::json& value) {
  if (value.is_string())
    for (std::size_t i = 0; i < kTriggerNames.size(); ++i)
      if (value.get_ref<const std::string&>() == kTriggerNames[i]) return static_cast<int>(i);
  base::bad_argument(name, shown(value), fmt::format("\"{}\"", fmt::join(kTriggerNames, "\", \"")));
}

template <std::size_t N>
int read_one_of(const std::string& name, const nlohmann::json& value, const std::array<int, N>& numbers) {
  if (value.is_number_integer())
    for (const int number : numbers)
      if (value == number) return number;
  base::bad_argument(name, shown(value), fmt::format("{}", fmt::join(numbers, ", ")));
}

KernelChoice read_choice(const std::string& path, const std::string& name, const nlohmann::json& json) {
  check_object(fmt::format("{}: {}", path, name), json, R"({"trigger": "after_polls"})");
  KernelChoice choice;
  for (const auto& [key, value] : json.items()) {
    const std::string full = fmt::format("{}: {}.{}", path, name, key);
    if (key == "trigger")
      choice.trigger = read_trigger(full, value);
    else if (key == "row_block")
      choice.row_block = read_one_of(full, value, kRowBlocks);
    else if (key == "tile")
      choice.tile = read_one_of(full, value, kTiles);
    else if (key == "stages")
      choice.stages = read_limit(path, fmt::format("{}.{}", name, key), value, 1, kMaxStages);
    else if (key == "warps")
      choice.warps = read_one_of(full, value, kWarpCounts);
    else
      base::bad_argument(fmt::format("{}: {}: key", path, name), key,
                         "trigger, row_block, tile, stages and warps");
  }
  return choice;
}

}  // namespace

std::size_t Policy::rank_index(int ranks) {
  for (std::size_t i = 0; i < kRankCounts.size(); ++i)
    if (kRankCounts[i] == ranks) return i;
  base::bad_argument("ranks", ranks, protocol::rule_text(protocol::ShapeRule::ranks).accepted);
}

int Policy::front_limit(int ranks) const {
  return front_up_to[rank_index(ranks)];
}

bool Policy::serves(int ranks, int batch, Mode mode, bool shares_reduced) const {
  const Mode served = batch <= front_limit(ranks) ? Mode::front : Mode::publish;
  return mode == served && shares_reduced == shares(served, batch);
}

KernelChoice Policy::kernel_for(int ranks, int batch, Mode mode, bool shares_reduced) const {
  const std::size_t bucket = bucket_index(batch);
  if (bucket == kBatchBuckets.size() || !serves(ranks, kBatchBuckets[bucket], mode, shares_reduced))
    return {};
  return cuda_kernels[rank_index(ranks)][bucket];
}

Policy Policy::of(Engine engine) {
  return engine == Engine::cuda ? h200_table() : Policy{};
}

Policy Policy::load(const std::string& path, Engine engine) {
  // A pipe would keep us waiting for a writer, and a device has no end.
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    base::fail(Code::file, "policy file {}: {}: accepted is a regular file", path,
               std::filesystem::exists(path, error) ? "is none" : "cannot be read");
  const auto bytes = std::filesystem::file_size(path, error);
  if (!error && bytes > kMostPolicyBytes)
    base::fail(Code::file, "policy file {}: {} bytes: accepted is at most {}", path, bytes, kMostPolicyBytes);
  std::ifstream file(path);
  if (!file) base::fail(Code::file, "policy file {}: cannot be read", path);
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, false);
  if (json.is_discarded() || !json.is_object())
    base::fail(Code::file, "policy file {}: not a JSON object", path);
  Policy policy = of(engine);
  for (const auto& [key, value] : json.items()) {
    if (key == "policy_version") {
      const int version = read_limit(path, key, value, 1);
      if (version != policy.version)
        base::bad_argument(fmt::format("{}: {}", path, key), version,
                           fmt::format("{}, this build's", policy.version));
    } else if (key == "share_from") {
      policy.share_from = read_limit(path, key, value, 1);
    } else if (key == "front_up_to") {
      const std::string name = fmt::format("{}: {}", path, key);
      check_object(name, value, R"({"8": 4})");
      for (const auto& [ranks, limit] : value.items())
        policy.front_up_to[read_place(name, ranks, kRankCounts)] =
            read_limit(path, fmt::format("{}[{}]", key, ranks), limit, 0);
    } else if (key == "cuda_kernels") {
      const std::string name = fmt::format("{}: {}", path, key);
      check_object(name, value, R"({"8": {"16": {"tile": 16}}})");
      for (const auto& [ranks, batches] : value.items()) {
        auto& of_ranks = policy.cuda_kernels[read_place(name, ranks, kRankCounts)];
        const std::string key_of_ranks = fmt::format("{}[{}]", key, ranks);
        check_object(fmt::format("{}: {}", path, key_of_ranks), batches, R"({"16": {"tile": 16}})");
        for (const auto& [bucket, choice] : batches.items())
          of_ranks[read_place(fmt::format("{}: {}", path, key_of_ranks), bucket, kBatchBuckets)] =
              read_choice(path, fmt::format("{}[{}]", key_of_ranks, bucket), choice);
      }
    } else {
      base::bad_argument(fmt::format("{}: key", path), key,
                         "policy_version, front_up_to, share_from and cuda_kernels");
    }
  }
  return policy;
}

}  // namespace moetail
