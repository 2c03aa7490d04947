// SPDX-License-Identifier: Apache-2.0
// What the arithmetic's own files share: the targets they offer, and how a register tile walks over a dot's output.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "engine/cpu/arith.hpp"

namespace moetail::cpu {

/// One dispatch target: its table, and its multiply-add instruction by itself for the roofline.
struct Target {
  Arith arith;

  /// Runs the instruction that `dot` is made of `rounds` times over independent accumulators, operands in registers.
  /// Returns the operations done, a multiply and an add counting as two.
  double (*spin)(long rounds);
};

// Each returns what is built into this binary and runs on this machine, and null or nothing otherwise. Asking for
// amx_bf16 asks Linux for the permission to use tile registers, which holds for the whole process from then on.
const Target* amx_bf16_target();
const Target* avx512_bf16_target();
std::vector<const Target*> highway_targets();  // best first
const Target* scalar_target();

/// The avx3 target with a dot of its own, or nothing where avx3 is not the best one that Highway offers here.
std::optional<Target> on_avx3(const char* name, decltype(Arith::dot) dot, decltype(Target::spin) spin);

/// All runnable targets, best first; the last one is scalar.
const std::vector<const Target*>& runnable_targets();

/// The target called `name`, or the first of `runnable` where no name is given. Throws Error(Code::unsupported) that
/// names MOETAIL_CPU_TARGET, the value and the names in `runnable`.
const Target& choose_target(const std::optional<std::string>& name,
                            const std::vector<const Target*>& runnable);

/// The target behind arith().
const Target& chosen_target();

/// Lanes of one running sum of `dot` on all targets but amx_bf16, and the bf16 columns that they consume in one step.
inline constexpr int kDotLanes = 16;
inline constexpr int kDotStep = 2 * kDotLanes;

/// How far ahead along each row of weights a dot prefetches while it takes them from memory (a prefetch never faults).
/// Measured flat from 128 to 512 bytes; see docs/cpu-arithmetic.md.
inline constexpr int kAheadBytes = 256;

/// Covers the output of a dot with register tiles. Kernel::tile<R, C, kAhead>(weights, operand, latent, dot, dot_pitch)
/// does R rows by C tokens, with a prefetch if kAhead; Kernel::kRows1, kRows2 and kRows4 are the rows of a tile of 1, 2
/// and 4 tokens. Many rows are many streams of memory, which is what a small batch lives on. A tile's shape never
/// changes the order of a sum.
template <typename Kernel>
class TileCover {
 public:
  TileCover(const Bf16* weights, const Bf16* operand, int latent, int num_rows, int num_tokens, float* dot,
            int dot_pitch)
      : weights_(weights),
        operand_(operand),
        latent_(latent),
        num_rows_(num_rows),
        num_tokens_(num_tokens),
        dot_(dot),
        dot_pitch_(dot_pitch) {}

  void run() const {
    if (num_tokens_ < 1) return;
    if (num_tokens_ == 1) return strips<Kernel::kRows1, 1>();
    if (num_tokens_ < 4) return strips<Kernel::kRows2, 2>();
    strips<Kernel::kRows4, 4>();
  }

 private:
  template <int R, int C>
  void strips() const {
    int row = 0;
    for (; row + R <= num_rows_; row += R) strip<R, C>(row);
    for (; row < num_rows_; ++row) strip<1, C>(row);
  }

  template <int R, int C>
  void strip(int row) const {
    tile<R, C, true>(row, 0);
    int token = C;
    for (; token + C <= num_tokens_; token += C) tile<R, C, false>(row, token);
    if constexpr (C > 2) {
      for (; token + 2 <= num_tokens_; token += 2) tile<R, 2, false>(row, token);
    }
    for (; token < num_tokens_; ++token) tile<R, 1, false>(row, token);
  }

  template <int R, int C, bool kAhead>
  void tile(int row, int token) const {
    const auto pitch = static_cast<std::size_t>(latent_);
    const std::size_t out = static_cast<std::size_t>(token) * static_cast<std::size_t>(dot_pitch_);
    Kernel::template tile<R, C, kAhead>(weights_ + static_cast<std::size_t>(row) * pitch,
                                        operand_ + static_cast<std::size_t>(token) * pitch, latent_,
                                        dot_ + out + row, dot_pitch_);
  }

  const Bf16* weights_;
  const Bf16* operand_;
  int latent_;
  int num_rows_;
  int num_tokens_;
  float* dot_;
  int dot_pitch_;
};

}  // namespace moetail::cpu
