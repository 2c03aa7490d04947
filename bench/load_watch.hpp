// SPDX-License-Identifier: Apache-2.0
// How busy the machine was with other things while something was measured.
#pragma once

#include <optional>

namespace moetail::bench {

/// Shares of all cores' time since a LoadWatch was made, 0 to 1.
struct Load {
  double others = 0;  ///< other processes and the kernel's interrupts
  double stolen = 0;  ///< the hypervisor gave the cores to somebody else
};

class LoadWatch {
 public:
  LoadWatch();
  /// Nothing where the system does not say (no /proc/stat) or no time has passed. Times are counted in ticks of 10 ms or so:
  /// watch for a second at least.
  std::optional<Load> load() const;

 private:
  struct Ticks {
    double busy = 0, idle = 0, stolen = 0;  ///< of all cores, seconds
    double own = 0;                         ///< this process, seconds
  };
  static std::optional<Ticks> read();

  std::optional<Ticks> begin_;
};

}  // namespace moetail::bench
