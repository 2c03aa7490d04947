// SPDX-License-Identifier: Apache-2.0
// Fuzz target: any bytes as the index of a checkpoint, as a tensor's name and as a list of layers. Either an
// error or results that hold what the parsers promise; docs/checkpoints.md says how to run it.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "base/error.hpp"
#include "io/layer_list.hpp"
#include "io/step_names.hpp"
#include "io/tail_name.hpp"
#include "io/weight_map.hpp"

namespace {

using moetail::Code;
using moetail::Error;
using moetail::io::WeightMapEntry;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

/// Runs `action`; the only exception that may leave it is an Error with `code`.
template <typename Action>
void may_fail_with(Code code, Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    require(error.code() == code, "the error has the documented code");
    require(std::string_view(error.what()).size() < 4096, "errors are short");
  }
}

void check_entry(const WeightMapEntry& entry) {
  require(moetail::io::tail_name(entry.parts.prefix, entry.parts.layer, entry.parts.tensor) == entry.name,
          "a name is the sum of its parts");
  const auto path = (std::filesystem::path("/checkpoint") / entry.shard).lexically_normal().string();
  require(path.starts_with("/checkpoint/"), "a shard stays in its directory");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  may_fail_with(Code::file, [&] {
    for (const WeightMapEntry& entry : moetail::io::parse_weight_map(text, "input")) check_entry(entry);
  });
  may_fail_with(Code::invalid_argument, [&] {
    const auto layers = moetail::io::parse_layer_list(text);
    require(!layers.empty(), "a list has layers");
    require(moetail::io::parse_layer_list(moetail::io::layer_list_text(layers)) == layers,
            "a list survives printing");
  });
  if (const auto parts = moetail::io::parse_tail_name(text)) {
    require(moetail::io::tail_name(parts->prefix, parts->layer, parts->tensor) == text,
            "a name is the sum of its parts");
  }
  if (const auto parts = moetail::io::parse_step_name(text)) {
    require(moetail::io::step_name(parts->layer, parts->rank, parts->field) == text,
            "a name is the sum of its parts");
  }
  return 0;
}
