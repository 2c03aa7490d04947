// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/budget.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace moetail::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kPartsOfSm = 4;       // each with a scheduler and a quarter of the registers
constexpr int kRegisterUnit = 8;    // a thread, in which the device hands registers out
constexpr int kMaxRegisters = 255;  // a thread, on every architecture

constexpr std::size_t kib(std::size_t count) {
  return count * 1024;
}

int round_up(int value, int unit) {
  return (value + unit - 1) / unit * unit;
}

/// Warps of `blocks` blocks on the fullest part of an SM.
int warps_on_fullest_part(int threads, int blocks) {
  const int warps = blocks * ((threads + kWarp - 1) / kWarp);
  return (warps + kPartsOfSm - 1) / kPartsOfSm;
}

/// Registers a thread with which so many blocks are resident on one SM.
int registers_that_fit(const DeviceLimits& limits, int threads, int blocks) {
  return limits.registers_per_sm / kPartsOfSm / (kWarp * warps_on_fullest_part(threads, blocks));
}

}  // namespace

DeviceLimits limits_of(const DeviceFacts& facts) {
  return {facts.arch(), facts.registers_per_sm, facts.max_threads_per_block, facts.shared_bytes_per_block};
}

DeviceLimits limits_of(const std::string& arch) {
  // CUDA C++ Programming Guide 13.0, "Technical specifications per compute capability": 64 K registers on all of them.
  constexpr int kRegisters = 65536;
  constexpr int kThreads = 1024;
  if (arch == "sm_90a" || arch == "sm_100a" || arch == "sm_103a")
    return {arch, kRegisters, kThreads, kib(227)};
  if (arch == "sm_120a") return {arch, kRegisters, kThreads, kib(99)};
  base::bad_argument("arch", arch, "sm_90a, sm_100a, sm_103a or sm_120a");
}

int registers_beside_successor(const DeviceLimits& limits, int threads) {
  const int fit = registers_that_fit(limits, threads, 2);
  // One unit below what two blocks would fill to the last register: 120 at 256 threads, 96 at 288.
  return std::min((fit - 1) / kRegisterUnit * kRegisterUnit, kMaxRegisters / kRegisterUnit * kRegisterUnit);
}

std::vector<std::string> budget_violations(const KernelUsage& usage, const Launch& launch,
                                           const Budget& budget, const DeviceLimits& limits) {
  std::vector<std::string> violations;
  const auto add = [&](const std::string& text) {
    violations.push_back(fmt::format("kernel {} ({}): {}", usage.name, limits.arch, text));
  };
  const int threads = static_cast<int>(launch.threads);
  if (threads > limits.max_threads_per_block)
    add(fmt::format("{} threads a block, the device has {}: plan fewer warps", threads,
                    limits.max_threads_per_block));
  // A block that fits only without its registers is refused by the device at every launch.
  const int fit = registers_that_fit(limits, threads, 1);
  if (round_up(usage.num_registers, kRegisterUnit) > fit)
    add(fmt::format(
        "{} registers a thread, a block of {} threads can have {}: plan fewer threads a block, or a smaller "
        "token tile",
        usage.num_registers, threads, fit));
  else if (budget.max_registers && usage.num_registers > *budget.max_registers)
    add(
        fmt::format("{} registers a thread, the budget at {} threads is {}: a smaller token tile, fewer "
                    "values in flight, "
                    "or --maxrregcount={} if it does not spill",
                    usage.num_registers, threads, *budget.max_registers, *budget.max_registers));
  const std::size_t spill_bytes = std::max(usage.spill_store_bytes, usage.spill_load_bytes);
  if (spill_bytes > budget.max_spill_bytes)
    add(
        fmt::format("{} bytes of spill stores and {} of spill loads, the budget is {}: raise --maxrregcount, "
                    "or hold fewer "
                    "values a thread",
                    usage.spill_store_bytes, usage.spill_load_bytes, budget.max_spill_bytes));
  const std::size_t shared = usage.static_shared_bytes + launch.shared_bytes;
  if (shared > limits.shared_bytes_per_block)
    add(
        fmt::format("{} bytes of shared memory a block ({} static, {} dynamic), the device has {}: fewer "
                    "weight stages, or a "
                    "smaller token tile",
                    shared, usage.static_shared_bytes, launch.shared_bytes, limits.shared_bytes_per_block));
  else if (budget.max_shared_bytes && shared > *budget.max_shared_bytes)
    add(
        fmt::format("{} bytes of shared memory a block ({} static, {} dynamic), the budget is {}: fewer "
                    "weight stages, or a "
                    "smaller token tile",
                    shared, usage.static_shared_bytes, launch.shared_bytes, *budget.max_shared_bytes));
  return violations;
}

std::string joined_violations(const std::vector<std::string>& violations) {
  std::string text;
  for (const std::string& violation : violations) text += (text.empty() ? "" : "; ") + violation;
  return text;
}

std::optional<std::string> residency_violation(const std::string& kernel, const Launch& launch, int resident,
                                               int needed) {
  if (resident >= needed) return std::nullopt;
  return fmt::format(
      "kernel {}: {} clusters of {} blocks ({} threads, {} bytes of dynamic shared memory) fit the device at "
      "once, and {} wait for "
      "each other: plan fewer clusters a rank or smaller ones, less shared memory a block, or fewer ranks on "
      "this device",
      kernel, resident, launch.cluster, launch.threads, launch.shared_bytes, needed);
}

}  // namespace moetail::cuda
