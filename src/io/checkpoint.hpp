// SPDX-License-Identifier: Apache-2.0
// The tail's weights of a Kimi K3 checkpoint, found by their names and checked before anything runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace moetail::io {

/// The up projections and norms of all MoE layers, as bf16 bits straight from the mapped files. Copies are
/// cheap; the spans are valid while any copy lives. Immutable, so any number of threads may read it. The
/// files must not be shortened while it is open (see MappedFile).
class Checkpoint {
 public:
  /// Opens, by what `path` is:
  ///  - a directory: the shards named by its model.safetensors.index.json, or else its model.safetensors;
  ///  - a file NAME.json: an index, with its shards beside it;
  ///  - any other file: one safetensors file.
  ///
  /// `layers` restricts it to those (only their shards need to exist); empty means all layers found. A prefix
  /// before "model.layers." is found out. Throws Error(Code::file) naming files, tensors, layers and what is
  /// accepted: a missing or ill-formed file, two prefixes, a layer with one of its two tensors, a tensor that
  /// its shard lacks, a dtype other than BF16, a shape other than [H, L] and [L], layers that differ in H or
  /// L, no MoE layer at all, or not one of `layers`.
  static Checkpoint open(const std::filesystem::path& path, std::span<const int> layers = {});

  /// Indices of the MoE layers, ascending.
  std::span<const int> layers() const noexcept;

  int hidden() const noexcept;  ///< H, rows of an up projection
  int latent() const noexcept;  ///< L, columns of an up projection

  /// What the names have before "model.layers.": empty, or ends with a dot.
  const std::string& prefix() const noexcept;

  /// Up projection of `layer`, [H, L] row-major bf16 bits. Aligned to 2 bytes only: the format promises no
  /// more, and common writers give 8. Throws Error(Code::invalid_argument) naming the layers there are.
  std::span<const std::uint16_t> up_proj(int layer) const;

  /// Norm weight of `layer`, [L] bf16 bits; otherwise like up_proj.
  std::span<const std::uint16_t> norm(int layer) const;

 private:
  struct Contents;
  struct Layer;

  explicit Checkpoint(std::shared_ptr<const Contents> contents) : contents_(std::move(contents)) {}
  const Layer& at(int layer) const;

  std::shared_ptr<const Contents> contents_;
};

}  // namespace moetail::io
