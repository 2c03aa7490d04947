// SPDX-License-Identifier: Apache-2.0
// Where the ceilings come from.
#include "cli/floor.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include "base/env.hpp"
#include "base/error.hpp"
#include "cli/machine.hpp"
#include "engine/cpu/arith.hpp"
#include "engine/cpu/ceilings.hpp"
#include "io/escaped.hpp"

namespace moetail::cli {
namespace {

Ceilings given_ceilings(const std::string& text) {
  char* end = nullptr;
  const double bytes = std::strtod(text.c_str(), &end);
  const bool has_both = *end == ',';
  const double flops = has_both ? std::strtod(end + 1, &end) : 0;
  if (!has_both || *end != '\0' || !(bytes > 0) || !(flops > 0) || !std::isfinite(bytes) ||
      !std::isfinite(flops))
    base::bad_argument(base::kCeilings.name, io::escaped(text), "two numbers above 0, such as 30.5,4000");
  return {1e9 * bytes, 1e9 * flops, this_machine().cores, cpu::arith().name, false};
}

}  // namespace

Ceilings find_ceilings() {
  if (const auto text = base::read_env(base::kCeilings)) return given_ceilings(*text);
  const cpu::Ceilings measured = cpu::measure_ceilings(this_machine().cores);
  return {measured.read_bytes_per_s, measured.bf16_flops, measured.threads, measured.flops_target, true};
}

std::string floor_text(const Ceilings& ceilings) {
  return fmt::format(
      "floor = max((weight + input + output bytes) / {:.1f} GB/s, flops / {:.0f} Gflop/s): {}, for {} "
      "thread{} and {} arithmetic",
      ceilings.bytes_per_second / 1e9, ceilings.flops_per_second / 1e9,
      ceilings.is_measured ? "measured in this run" : "given by MOETAIL_CEILINGS", ceilings.threads,
      ceilings.threads == 1 ? "" : "s", ceilings.target);
}

}  // namespace moetail::cli
