// SPDX-License-Identifier: Apache-2.0
// The things that a tail's kernel may be asked for, by name.
#pragma once

#include <array>
#include <cstddef>

namespace moetail::bench {

enum class Knob : std::size_t { trigger, warps, tile, row_block, stages };
/// In the order in which a search tries them: what the others depend on the least first.
inline constexpr std::array<Knob, 5> kKnobs = {Knob::trigger, Knob::warps, Knob::tile, Knob::row_block,
                                               Knob::stages};

/// As the policy file spells it.
constexpr const char* knob_name(Knob knob) {
  constexpr std::array<const char*, kKnobs.size()> kNames = {"trigger", "warps", "tile", "row_block",
                                                             "stages"};
  return kNames[static_cast<std::size_t>(knob)];
}

}  // namespace moetail::bench
