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

int read_limit(const std::string& path, const std::string& key, const nlohmann::json& value, int least) {
  const auto accepted = fmt::format("an integer from {} to {}", least, protocol::kMaxCapacity);
  if (!value.is_number_integer())
    base::bad_argument(fmt::format("{}: {}", path, key), shown(value), accepted);
  const auto number = value.get<std::int64_t>();
  if (number < least || number > protocol::kMaxCapacity)
    base::bad_argument(fmt::format("{}: {}", path, key), shown(value), accepted);
  return static_cast<int>(number);
}

}  // namespace

int Policy::front_limit(int ranks) const {
  for (std::size_t i = 0; i < kRankCounts.size(); ++i)
    if (kRankCounts[i] == ranks) return front_up_to[i];
  base::bad_argument("ranks", ranks, protocol::rule_text(protocol::ShapeRule::ranks).accepted);
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
      if (!value.is_object())
        base::bad_argument(fmt::format("{}: {}", path, key), shown(value), "an object such as {\"8\": 4}");
      for (const auto& [ranks, limit] : value.items()) {
        std::size_t i = 0;
        while (i < kRankCounts.size() && std::to_string(kRankCounts[i]) != ranks) ++i;
        if (i == kRankCounts.size())
          base::bad_argument(fmt::format("{}: {}", path, key), ranks,
                             "the keys \"1\", \"2\", \"4\", \"8\" and \"16\"");
        policy.front_up_to[i] = read_limit(path, fmt::format("{}[{}]", key, ranks), limit, 0);
      }
    } else {
      base::bad_argument(fmt::format("{}: key", path), key, "policy_version, front_up_to and share_from");
    }
  }
  return policy;
}

}  // namespace moetail
