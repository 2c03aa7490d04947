// SPDX-License-Identifier: Apache-2.0
#include "base/kernel_choice.hpp"

#include <fmt/format.h>

#include <utility>

namespace moetail {

std::string choice_text(const KernelChoice& choice) {
  std::string text;
  const auto add = [&](const char* name, const std::string& value) {
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", name, value);
  };
  if (choice.trigger >= 0 && choice.trigger < static_cast<int>(kTriggerNames.size()))
    add("trigger", kTriggerNames[static_cast<std::size_t>(choice.trigger)]);
  const std::pair<const char*, int> numbers[] = {{"row_block", choice.row_block},
                                                 {"tile", choice.tile},
                                                 {"stages", choice.stages},
                                                 {"warps", choice.warps}};
  for (const auto& [name, value] : numbers)
    if (value != KernelChoice::kOwn) add(name, fmt::format("{}", value));
  return text.empty() ? "as planned" : text;
}

}  // namespace moetail
