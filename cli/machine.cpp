// SPDX-License-Identifier: Apache-2.0
// Facts about the machine from /proc, the control groups (both versions) and uname.
#include "cli/machine.hpp"

#include <sched.h>
#include <sys/utsname.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>
#include <thread>

namespace moetail::cli {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

// The value of the first of `keys` that stands before a colon in a file of "key : value" lines.
std::optional<std::string> value_of(const char* path, std::initializer_list<std::string_view> keys) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string_view key = trimmed(std::string_view(line).substr(0, colon));
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) continue;
    const std::string_view value = trimmed(std::string_view(line).substr(colon + 1));
    if (!value.empty()) return std::string(value);
  }
  return std::nullopt;
}

// "24563712 kB" in bytes.
std::optional<std::uint64_t> meminfo_bytes(std::string_view key) {
  const auto text = value_of("/proc/meminfo", {key});
  if (!text) return std::nullopt;
  return std::strtoull(text->c_str(), nullptr, 10) * 1024;
}

// A file that holds one number; nothing where it is missing or holds a word such as "max".
std::optional<std::uint64_t> number_in(const char* path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

struct GroupMemory {
  std::uint64_t limit, used;
};

std::optional<GroupMemory> group_memory() {
  constexpr const char* kFiles[2][2] = {
      {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"}};
  for (const auto& [limit_file, used_file] : kFiles) {
    const auto limit = number_in(limit_file), used = number_in(used_file);
    if (limit && used) return GroupMemory{*limit, *used};
  }
  return std::nullopt;
}

}  // namespace

Machine this_machine() {
  Machine machine;
  // Arm's cpuinfo has no model name; the fields it has are the next best.
  machine.cpu = value_of("/proc/cpuinfo", {"model name", "Model", "Hardware"}).value_or("unknown processor");

  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  machine.cores = sched_getaffinity(0, sizeof(allowed), &allowed) == 0
                      ? CPU_COUNT(&allowed)
                      : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));

  machine.memory_bytes = meminfo_bytes("MemTotal").value_or(0);
  machine.available_bytes = meminfo_bytes("MemAvailable").value_or(0);
  if (const auto group = group_memory(); group && group->limit < machine.memory_bytes) {
    machine.memory_bytes = group->limit;
    // Part of what the group uses is page cache that the kernel would give up; not counting on it errs on the safe side.
    const std::uint64_t left = group->limit - std::min(group->limit, group->used);
    machine.available_bytes = std::min(machine.available_bytes, left);
  }

  if (utsname names; uname(&names) == 0)
    machine.system = std::string(names.sysname) + " " + names.release + " " + names.machine;
  return machine;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace moetail::cli
