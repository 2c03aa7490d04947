// SPDX-License-Identifier: Apache-2.0
// moetail make-checkpoint: synthetic weights of any shape under Kimi K3's tensor names, the same that `moetail run` makes up.
#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "cli/commands.hpp"
#include "cli/exit_code.hpp"
#include "cli/format.hpp"
#include "cli/progress.hpp"
#include "cli/weights.hpp"
#include "io/checkpoint_writer.hpp"

namespace moetail::cli {
namespace {

namespace fs = std::filesystem;

// Removes the files of an earlier make-checkpoint and nothing else: the writer refuses what else is there.
void remove_checkpoint(const fs::path& directory) {
  std::error_code error;
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    if (io::is_checkpoint_file(entry->path().filename().string())) files.push_back(entry->path());
  for (const fs::path& file : files)
    if (!fs::remove(file, error) && error)
      base::fail(Code::file, "--force: {} cannot be removed ({})", file.string(), error.message());
}

}  // namespace

int make_checkpoint_command(const MakeCheckpointOptions& options) {
  const Shape shape = options.shape.shape(1);
  make_plan({.shape = shape, .batch = 1});  // states the rule that a shape breaks
  io::CheckpointSpec spec;
  spec.layers = synthetic_layer_count(options.layers);
  spec.hidden = shape.hidden;
  spec.latent = shape.latent;
  spec.shards = options.shards;
  spec.prefix = options.prefix;
  if (options.force) remove_checkpoint(options.directory);

  Progress progress(options.quiet);
  progress.begin(fmt::format("{} layers to {}", spec.layers, options.directory),
                 static_cast<std::uint64_t>(spec.layers));
  io::write_checkpoint(options.directory, spec, [&](int layer, io::TailTensor tensor, std::span<Bf16> bits) {
    fill_synthetic(options.seed, layer, tensor, spec.latent, bits);
    if (tensor == io::TailTensor::up_proj) progress.advance();
  });
  progress.end();
  const std::uint64_t layer_bytes =
      2 * static_cast<std::uint64_t>(spec.latent) * static_cast<std::uint64_t>(spec.hidden + 1);
  fmt::print("{}: {} layers of [{}, {}] bf16, {}, in {} file{}\n", options.directory, spec.layers,
             spec.hidden, spec.latent, bytes_text(layer_bytes * static_cast<std::uint64_t>(spec.layers)),
             spec.shards, spec.shards == 1 ? "" : "s");
  return kAllPassed;
}

}  // namespace moetail::cli
