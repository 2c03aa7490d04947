// SPDX-License-Identifier: Apache-2.0
// The GPU program: runs its cases, or those whose name is one of the arguments or, where none has that name, holds it. Ends with
// "N passed, N failed, N skipped".
//   list                  the names of the cases
//   bench, ablation, only  timings of experiments (bench.cpp, ablation.cpp) after the cases, or alone
//   B8, T4                one batch, one rank count of the timings; any number of them
//   publish, share, twoshot, launches, fshare  their mode, front without one: publish, the same with shared sums, two-shot, by three launches
//                         with `twoshot`, front with shared sums
//   deadline=SECONDS      of every wait, for tools that slow each access down
//   few                   of cases with many thousand calls a hundredth, where a call takes long
//   -DNAME=VALUE          for every kernel of the timings
//   -lineinfo             lines of the sources in the kernels, for tools that name them
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <set>

#include "tests/gpu/bench_words.hpp"

namespace moetail::gpu {
namespace {

std::vector<Case> all_cases() {
  auto cases = front_cases();
  for (const auto& more : {mode_cases(), fault_cases(), host_cases(), control_cases(), stress_cases(),
                           graph_cases(), contract_cases(), dependent_cases(), stall_cases(), user_cases(),
                           capture_cases(), early_cases(), small_cases(), mismatch_cases(), pattern_cases()})
    cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

int run(const std::vector<std::string>& words) {
  const std::set<std::string> known = {"bench", "ablation", "only", "-lineinfo"};
  const auto has = [&](const char* word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  const std::string kDeadline = "deadline=";
  std::vector<std::string> filters;
  for (const auto& word : words) {
    if (word.rfind(kDeadline, 0) == 0)
      Rig::default_deadline_ns = std::stoull(word.substr(kDeadline.size())) * 1'000'000'000;
    else if (word == "few")
      few_calls = true;
    else if (known.count(word) == 0 && !BenchWords::knows(word) && word.rfind("-D", 0) != 0)
      filters.push_back(word);
  }
  auto gpu = Gpu::open();
  if (has("-lineinfo")) gpu.options.push_back("-lineinfo");
  fmt::print("{}, {} SMs\n", gpu.context->facts().name, gpu.context->facts().num_sms);
  int passed = 0, failed = 0;
  auto cases = all_cases();
  const auto is_name = [all = cases](const std::string& word) {
    return std::any_of(all.begin(), all.end(), [&](const Case& test) { return test.name == word; });
  };
  std::erase_if(cases, [&](const Case& test) {
    bool wanted = filters.empty() && !has("only");
    for (const auto& filter : filters)
      wanted |= is_name(filter) ? test.name == filter : test.name.find(filter) != std::string::npos;
    return !wanted;
  });
  for (const auto& test : planted_cases())
    if (has(test.name.c_str())) cases.push_back(test);
  for (const auto& test : cases) {
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
  if (has("ablation")) run_ablation(gpu, words) ? ++passed : ++failed;
  if (has("bench")) run_bench(gpu, words) ? ++passed : ++failed;
  fmt::print("{} passed, {} failed, 0 skipped\n", passed, failed);
  if (passed + failed == 0) fmt::print("no case's name holds one of the arguments: `list` prints them\n");
  return failed == 0 && passed > 0 ? 0 : 1;
}

}  // namespace
}  // namespace moetail::gpu

int main(int argc, char** argv) {
  using namespace moetail;
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 1 && words[0] == "list") {
    for (const auto& test : gpu::all_cases()) fmt::print("{}\n", test.name);
    return 0;
  }
  const auto support = cuda::cuda_support();
  if (!support.usable) {
    fmt::print("skipped: {}\n0 passed, 0 failed, 1 skipped\n", support.reason);
    return 77;
  }
  return gpu::run(words);
}
