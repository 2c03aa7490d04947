// SPDX-License-Identifier: Apache-2.0
// Reads Linux's accounting of core time.
#include "bench/load_watch.hpp"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <string>

namespace moetail::bench {

LoadWatch::LoadWatch() : begin_(read()) {}

std::optional<LoadWatch::Ticks> LoadWatch::read() {
  std::ifstream file("/proc/stat");
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, stolen = 0;
  if (!(file >> name >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> stolen) ||
      name != "cpu")
    return std::nullopt;
  timespec own{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
  const double second = static_cast<double>(sysconf(_SC_CLK_TCK));
  return Ticks{(user + nice + system + irq + softirq) / second, (idle + iowait) / second, stolen / second,
               static_cast<double>(own.tv_sec) + 1e-9 * static_cast<double>(own.tv_nsec)};
}

std::optional<Load> LoadWatch::load() const {
  const std::optional<Ticks> end = read();
  if (!begin_ || !end) return std::nullopt;
  const double busy = end->busy - begin_->busy, stolen = end->stolen - begin_->stolen;
  const double all = busy + stolen + end->idle - begin_->idle;
  if (!(all > 0)) return std::nullopt;
  return Load{std::clamp((busy - (end->own - begin_->own)) / all, 0.0, 1.0),
              std::clamp(stolen / all, 0.0, 1.0)};
}

}  // namespace moetail::bench
