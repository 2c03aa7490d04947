// SPDX-License-Identifier: Apache-2.0
// The machine's own ceilings, measured: what the CPU engine's floor is made of.
#pragma once

#include <string>

namespace moetail::cpu {

/// What `threads` threads of this machine can do together at best.
struct Ceilings {
  double read_bytes_per_s = 0;  ///< reading memory that no cache holds
  double bf16_flops =
      0;  ///< operations per second of the dot's own instruction, a multiply and an add being two
  int threads = 0;
  std::string flops_target;  ///< the dispatch target whose instruction it is, see arith()
};

/// Measures both, in about one second; the machine should be idle otherwise. Reads 1.5 GiB, or a quarter of the
/// machine's memory where that is less, several times and keeps the best pass; then does the same with multiply-adds
/// from registers. A call's floor is the larger of its bytes over the first and its operations over the second.
/// Throws Error(Code::invalid_argument) unless threads >= 1, Error(Code::resource) if memory or threads run out.
Ceilings measure_ceilings(int threads);

}  // namespace moetail::cpu
