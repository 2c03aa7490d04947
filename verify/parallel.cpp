// SPDX-License-Identifier: Apache-2.0
// Plain threads, one part each; the caller's thread takes the first part.
#include "verify/parallel.hpp"

#include <algorithm>
#include <exception>
#include <thread>
#include <vector>

namespace moetail::verify {

using protocol::u64;

int thread_count(int requested) {
  if (requested > 0) return requested;
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

int threads_for(u64 steps, int requested) {
  if (requested > 0) return requested;
  return static_cast<int>(std::min<u64>(1 + (steps >> 20), static_cast<u64>(thread_count())));
}

void for_parts(u64 count, u64 granule, const std::function<void(int, u64, u64)>& work, int threads) {
  if (count == 0) return;
  const u64 granules = (count + granule - 1) / granule;
  const u64 parts = std::min<u64>(granules, static_cast<u64>(thread_count(threads)));
  std::vector<std::exception_ptr> errors(parts);
  const auto run_part = [&](u64 part) {
    try {
      const u64 begin = granules * part / parts * granule;
      work(static_cast<int>(part), begin, std::min(count, granules * (part + 1) / parts * granule));
    } catch (...) {
      errors[part] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> helpers;
    helpers.reserve(parts - 1);
    for (u64 part = 1; part < parts; ++part) helpers.emplace_back(run_part, part);
    run_part(0);
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace moetail::verify
