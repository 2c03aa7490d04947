// SPDX-License-Identifier: Apache-2.0
// The vectorized inner loop of the generator.
#pragma once

#include <cstddef>

#include "verify/hash.hpp"

namespace moetail::verify {

/// out[i] = bf16(float(bell(pair(first + i)) + offset) * scale) for i in [0, count), first + count <= 2^32.
/// The same bits on every dispatch target: integers, one exact conversion and one multiplication.
void fill_bell(RunKey run, protocol::u32 first, protocol::i32 offset, float scale, protocol::u16* out,
               std::size_t count);

/// One element of fill_bell, and its definition.
protocol::u16 bell_element(HashPair pair, protocol::i32 offset, float scale);

}  // namespace moetail::verify
