// SPDX-License-Identifier: Apache-2.0
// The GPU program: runs its cases (or those whose name holds one of the arguments), then `bench` where that is asked for. Ends with
// "N passed, N failed".
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "tests/gpu/rig.hpp"

int main(int argc, char** argv) {
  using namespace moetail;
  const auto support = cuda::cuda_support();
  if (!support.usable) {
    fmt::print("skipped: {}\n0 passed, 0 failed, 1 skipped\n", support.reason);
    return 77;
  }
  std::vector<std::string> words(argv + 1, argv + argc);
  const bool wants_bench = std::find(words.begin(), words.end(), "bench") != words.end();
  const bool only_bench = std::find(words.begin(), words.end(), "only") != words.end();
  std::vector<std::string> filters;
  for (const auto& word : words)
    if (word != "bench" && word != "only" && word != "publish" && word != "share" && word != "twoshot" &&
        word != "fshare" && word.rfind("-D", 0) != 0 && word[0] != 'B')
      filters.push_back(word);
  auto gpu = gpu::Gpu::open();
  fmt::print("{}, {} SMs\n", gpu.context->facts().name, gpu.context->facts().num_sms);
  int passed = 0, failed = 0;
  auto cases = gpu::front_cases();
  for (const auto& more :
       {gpu::mode_cases(), gpu::fault_cases(), gpu::host_cases(), gpu::control_cases(), gpu::stress_cases(),
        gpu::graph_cases(), gpu::contract_cases(), gpu::dependent_cases(), gpu::stall_cases()})
    cases.insert(cases.end(), more.begin(), more.end());
  for (const auto& test : cases) {
    bool wanted = filters.empty() && !only_bench;
    for (const auto& filter : filters) wanted |= test.name.find(filter) != std::string::npos;
    if (!wanted) continue;
    const auto begin = std::chrono::steady_clock::now();
    std::string reason;
    try {
      test.run(gpu);
    } catch (const std::exception& error) {
      reason = error.what();
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    fmt::print("{} {} ({:.1f} s) {}\n", reason.empty() ? "pass" : "FAIL", test.name, seconds, reason);
    std::fflush(stdout);
    reason.empty() ? ++passed : ++failed;
  }
  if (wants_bench) gpu::run_bench(gpu, words) ? ++passed : ++failed;
  fmt::print("{} passed, {} failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}
