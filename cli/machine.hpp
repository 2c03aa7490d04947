// SPDX-License-Identifier: Apache-2.0
// What the operating system says about this machine.
#pragma once

#include <cstdint>
#include <string>

namespace moetail::cli {

struct Machine {
  std::string cpu;                    ///< the processor's name, as /proc/cpuinfo spells it
  int cores = 1;                      ///< logical processors that this process may run on
  std::uint64_t memory_bytes = 0;     ///< installed, or what the control group allows if that is less
  std::uint64_t available_bytes = 0;  ///< could be allocated now without swapping; 0: not known
  std::string system;                 ///< operating system and architecture
};

/// Asks once, at the call.
Machine this_machine();

/// Now in UTC, as 2026-01-31T12:34:56Z.
std::string utc_now();

}  // namespace moetail::cli
