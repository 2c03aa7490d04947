// SPDX-License-Identifier: Apache-2.0
// The report of `ptxas -v`, of which NVRTC 12 and 13 write, for each function:
//   ptxas info    : Compiling entry function 'front' for 'sm_90a'
//   ptxas info    : Function properties for front
//       0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
//   ptxas info    : Used 88 registers, used 2 barriers, 1040 bytes smem
#include <cctype>
#include <string_view>

#include "engine/cuda/nvrtc.hpp"

namespace moetail::cuda {
namespace {

/// The number that ends just before `what`, as in "88 registers"; 0 where the line has none.
std::size_t number_before(std::string_view line, std::string_view what) {
  const std::size_t end = line.find(what);
  if (end == std::string_view::npos) return 0;
  std::size_t begin = end;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(line[begin - 1])) != 0) --begin;
  std::size_t value = 0;
  for (std::size_t i = begin; i < end; ++i) value = value * 10 + static_cast<std::size_t>(line[i] - '0');
  return value;
}

/// What follows `what` up to `stop`, or nothing.
std::string_view text_after(std::string_view line, std::string_view what, std::string_view stop) {
  const std::size_t found = line.find(what);
  if (found == std::string_view::npos) return {};
  const std::string_view rest = line.substr(found + what.size());
  return rest.substr(0, rest.find_first_of(stop));
}

}  // namespace

std::vector<KernelUsage> parse_ptxas_log(const std::string& log) {
  std::vector<KernelUsage> usage;
  // Properties of functions that are no entries come in between, and are not the entry's.
  bool in_entry = false;
  std::string_view rest = log;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    if (const auto entry = text_after(line, "Compiling entry function '", "'"); !entry.empty()) {
      usage.push_back({});
      usage.back().name = entry;
      in_entry = true;
    } else if (const auto function = text_after(line, "Function properties for ", " \r"); !function.empty()) {
      in_entry = !usage.empty() && function == usage.back().name;
    } else if (in_entry && line.find("bytes stack frame") != std::string_view::npos) {
      usage.back().stack_bytes = number_before(line, " bytes stack frame");
      usage.back().spill_store_bytes = number_before(line, " bytes spill stores");
      usage.back().spill_load_bytes = number_before(line, " bytes spill loads");
    } else if (in_entry && line.find(" registers") != std::string_view::npos) {
      usage.back().num_registers = static_cast<int>(number_before(line, " registers"));
      usage.back().num_barriers = static_cast<int>(number_before(line, " barriers"));
      usage.back().static_shared_bytes = number_before(line, " bytes smem");
    }
  }
  return usage;
}

}  // namespace moetail::cuda
