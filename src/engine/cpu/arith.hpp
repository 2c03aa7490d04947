// SPDX-License-Identifier: Apache-2.0
// The CPU engine's arithmetic: one table of functions per dispatch target, chosen once at run time. No mailbox, no
// thread and no allocation is known here; every function is pure and safe to call from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace moetail::cpu {

using Bf16 = std::uint16_t;  // bf16 bits

/// Arithmetic of one dispatch target. Everything but `dot` gives the same bits on every target (the order of each sum
/// is stated in protocol/numerics.hpp; subnormals and -0 are kept; of an fp32 NaN only that it is one is fixed, a bf16
/// NaN is 0x7FFF); `dot` has one fixed accumulation order per target, which depends on `latent` alone: the same (row,
/// token) gives the same bits whatever the number of rows, tokens or threads. docs/cpu-arithmetic.md states the orders.
struct Arith {
  const char* name;  ///< "avx512_bf16", "avx2", ...

  /// partial[c] for columns [begin, end) of one token. `rows[k]` is row k of the token ([L] bf16), or null for a dropped
  /// route, which is skipped; `weights[k]` its weight. Grouping: protocol::finalize_group_begin / finalize_join.
  /// `begin` and `end` are multiples of 8. Writes out[begin..end), one rounding by bf16_from_f32.
  void (*finalize)(const Bf16* const* rows, const float* weights, int top_k, int begin, int end, Bf16* out);

  /// sum[c] = ((rows[0][c] + rows[1][c]) + rows[2][c]) + ... in fp32, for c in [0, columns); num_rows >= 1,
  /// columns % 8 == 0.
  void (*sum_rows)(const Bf16* const* rows, int num_rows, int columns, float* sum);

  /// operand[c] = bf16(gamma[c] * x[c]); returns the sum of x[c]^2 in the order of protocol::kSquareLanes.
  float (*norm_operand)(const float* x, const Bf16* gamma, int columns, Bf16* operand);

  /// dot[t * dot_pitch + r] = sum over c of weights[r * latent + c] * operand[t * latent + c], fp32 accumulation.
  /// `weights` [num_rows, latent] and `operand` [num_tokens, latent] bf16, 16-byte aligned, latent % 8 == 0. Reads no
  /// byte outside of the two arrays and writes nothing but the num_rows floats of each token. A NaN or Inf comes out as
  /// NaN or Inf where an fp32 evaluation has one; amx_bf16 and avx512_bf16 take subnormal inputs for zero (so that Inf
  /// times a subnormal is NaN) and flush subnormal results. amx_bf16 and avx2 keep scratch of each calling
  /// thread, at most the larger of 1 MB and 32 tokens, and may throw std::bad_alloc when they first need it.
  void (*dot)(const Bf16* weights, const Bf16* operand, int latent, int num_rows, int num_tokens, float* dot,
              int dot_pitch);

  /// out[c] = bf16( fma(dot[c], scale, shared[c]) (+ residual[c]) ), residual null where there is none. columns % 8 == 0.
  void (*finish)(const float* dot, float scale, const float* shared, const Bf16* residual, int columns,
                 Bf16* out);
};

/// The table in use: the best target of this machine, or the one that MOETAIL_CPU_TARGET names, chosen at the first
/// call. Throws Error(Code::unsupported) naming the value and the accepted targets when that one does not exist or
/// cannot run here.
const Arith& arith();

/// All targets built into this binary that this machine can run, best first. On a machine with AMX the first call (of
/// this or of arith()) asks Linux for the permission to use tile registers, which the process then keeps.
std::vector<const Arith*> runnable_arith_targets();

}  // namespace moetail::cpu
