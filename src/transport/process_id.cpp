// SPDX-License-Identifier: Apache-2.0
#include "transport/process_id.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace moetail::transport {
namespace {

struct ProcessStat {
  bool found = false;
  protocol::i32 pid = 0;
  char state = '?';
  protocol::u64 start_ticks = 0;
};

// /proc/PID/stat: the name in brackets may hold anything, so fields are counted from the last bracket.
ProcessStat read_stat(const std::string& process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t bracket = text.rfind(')');
  ProcessStat stat;
  if (bracket == std::string::npos || !(std::istringstream(text) >> stat.pid)) return stat;
  std::istringstream fields(text.substr(bracket + 1));
  std::string skipped;
  if (!(fields >> stat.state)) return stat;
  constexpr int kBetweenStateAndStart = 18;
  for (int i = 0; i < kBetweenStateAndStart; ++i) fields >> skipped;
  stat.found = static_cast<bool>(fields >> stat.start_ticks);
  return stat;
}

protocol::u64 pid_namespace() {
  struct stat info {};
  return stat("/proc/self/ns/pid", &info) == 0 ? static_cast<protocol::u64>(info.st_ino) : 0;
}

bool has_proc() {
  return access("/proc/self/stat", R_OK) == 0;
}

}  // namespace

ProcessId this_process() {
  // A /proc of another PID namespace has other processes under these numbers: then nobody can tell whether this one lives.
  const ProcessStat stat = read_stat("self");
  return {pid_namespace(), stat.pid == getpid() ? stat.start_ticks : 0, getpid()};
}

bool is_gone(const ProcessId& process) {
  if (process.pid <= 0 || process.start_ticks == 0 || process.pid_namespace != pid_namespace() || !has_proc())
    return false;
  const ProcessStat stat = read_stat(fmt::format("{}", process.pid));
  if (!stat.found) return access(fmt::format("/proc/{}", process.pid).c_str(), F_OK) != 0;
  return stat.start_ticks != process.start_ticks || stat.state == 'Z' || stat.state == 'X';
}

}  // namespace moetail::transport
