// SPDX-License-Identifier: Apache-2.0
// The environment variables that moetail reads: one table, which `moetail info` prints, and the one way to read them.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace moetail::base {

struct EnvVariable {
  const char* name;
  const char* meaning;
  const char* accepted;       ///< what it may hold
  const char* default_value;  ///< what happens without it
};

inline constexpr EnvVariable kCpuTarget = {
    "MOETAIL_CPU_TARGET", "dispatch target of the CPU engine's arithmetic", "a runnable target, see above",
    "the best one that this machine runs"};

inline constexpr EnvVariable kCeilings = {
    "MOETAIL_CEILINGS",
    "read bandwidth and bf16 peak that floors are computed from, so that nothing is measured",
    "GBYTE_PER_S,GFLOP_PER_S", "measured when needed"};

inline constexpr EnvVariable kMulticast = {
    "MOETAIL_MULTICAST",
    "whether one store may reach all ranks; on the CPU, whether they read one common copy of the latents",
    "0 or 1", "1 where the transport offers it"};

/// All of them, in the order in which they are printed. A variable that is read and stands in no row here is a mistake.
inline constexpr EnvVariable kEnvironment[] = {kCpuTarget, kCeilings, kMulticast};

/// The variable's value, or nothing where it is unset or empty.
inline std::optional<std::string> read_env(const EnvVariable& variable) {
  const char* value = std::getenv(variable.name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

}  // namespace moetail::base
