// SPDX-License-Identifier: Apache-2.0
// Arrays from a hash: bell-shaped bf16, routing weights, route maps, and the awkward values a mailbox must
// survive. Every element depends on (key, index) alone; verify/hash.hpp defines it.
#pragma once

#include <span>
#include <vector>

#include "protocol/words.hpp"
#include "verify/hash.hpp"

namespace moetail::verify {

using protocol::i32;
using protocol::u16;
using protocol::u32;
using protocol::u64;

/// A normal-like distribution; deviation > 0. The mean is kept as a whole number of bell steps (deviation /
/// 37837).
struct Normal {
  float deviation = 1.0f;
  float mean = 0.0f;
};

/// out[i] = element `begin + i` of the array `key`: bf16(bell * scale). Vectorized; one thread.
void fill_normal(const Key& key, Normal normal, u64 begin, std::span<u16> out);

/// The same over `threads` threads (0: as many as the work is worth).
void fill_normal_parallel(const Key& key, Normal normal, std::span<u16> out, int threads = 0);

/// The definition, element by element: what fill_normal computes.
u16 normal_element(const Key& key, Normal normal, u64 index);

/// Kinds of awkward values, to be or-ed. A pair is an aligned 32-bit word of two bf16.
namespace special {
inline constexpr u32 kMinusZero = 1;  ///< 0x8000
inline constexpr u32 kPlusZero = 2;   ///< 0x0000
inline constexpr u32 kSubnormal = 4;  ///< any subnormal, either sign
inline constexpr u32 kZeroPair = 8;   ///< 0x80000000, the pair (+0, -0): the sentinel of other systems
inline constexpr u32 kInfinity = 16;  ///< +Inf or -Inf
inline constexpr u32 kNan = 32;       ///< any NaN payload, either sign
inline constexpr u32 kSentinel = 64;  ///< the word 0xFFFFFFFF
inline constexpr u32 kNearSentinel =
    128;  ///< words one bit or one half away from it, and the word it is cleaned to
inline constexpr u32 kFinite = kMinusZero | kPlusZero | kSubnormal | kZeroPair;
inline constexpr u32 kAll = 255;
}  // namespace special

/// Which share of the pairs is replaced, and by what.
struct Specials {
  u32 kinds = 0;       ///< of namespace special; 0: none
  double share = 0.0;  ///< 0 to 1, of aligned pairs
};

/// Replaces elements of `out`, which holds elements [begin, begin + size) of the array `key`; other elements
/// stay.
void sprinkle(const Key& key, Specials specials, u64 begin, std::span<u16> out);

/// Routing weights of tokens [begin, begin + weights.size() / top_k): positive, at most 5 times apart within
/// a token, summing to 1 up to their rounding.
void fill_weights(const Key& key, int top_k, u64 begin, std::span<float> weights);
void fill_weights(const Key& key, int top_k, u64 begin, std::span<u16> weights);

/// A route map [batch, top_k] and the number of rows it points into.
struct RouteMap {
  std::vector<i32>
      map;  ///< kept routes hold distinct rows in random order; dropped ones negative values of all kinds
  int num_rows = 0;  ///< kept routes + spare rows
};

/// Drops about `dropped_share` of the routes (1: all) and spreads the others over their number + `spare_rows`
/// rows.
RouteMap make_route_map(const Key& key, int batch, int top_k, double dropped_share, int spare_rows = 0);

/// About `count` distinct hidden columns in rising order, whole 16-byte lines of 8 taken evenly from the
/// shards of all ranks (at least one line a shard); all columns where `count` reaches `hidden`.
std::vector<i32> sample_columns(u64 seed, int hidden, int num_ranks, int count);

}  // namespace moetail::verify
