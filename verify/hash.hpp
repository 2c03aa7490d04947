// SPDX-License-Identifier: Apache-2.0
// The hash behind every generated input: word(seed, stream, rank, layer, index). It is counter based, so that
// any rank computes any element of anybody's input with no state, and the scalar text below is the definition
// the tests use.
#pragma once

#include "protocol/words.hpp"

namespace moetail::verify {

/// Which array of a call an element belongs to. The values are part of the definition of the inputs.
enum class Stream : protocol::u32 {
  rows = 1,
  weights = 2,
  map = 3,
  partial = 4,
  shared = 5,
  residual = 6,
  gamma = 7,
  w_up = 8,
  columns = 9,
  own = 64,  ///< this and above: free for callers
};

/// Names one array. Steps of a run differ by seed (seed + step), layers by `layer`. Arrays that all ranks
/// hold alike (residual, gamma, w_up) use rank 0.
struct Key {
  protocol::u64 seed = 0;
  Stream stream = Stream::own;
  int rank = 0;
  int layer = 0;
};

/// The 64-bit finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection that mixes every bit into every
/// other.
constexpr protocol::u64 mix64(protocol::u64 v) {
  v = (v ^ (v >> 30)) * 0xBF58476D1CE4E5B9ull;
  v = (v ^ (v >> 27)) * 0x94D049BB133111EBull;
  return v ^ (v >> 31);
}

/// The 32-bit finalizer of MurmurHash3 (Appleby, public domain), for the inner loop: 32-bit multiplies
/// vectorize.
constexpr protocol::u32 mix32(protocol::u32 v) {
  v = (v ^ (v >> 16)) * 0x85EBCA6Bu;
  v = (v ^ (v >> 13)) * 0xC2B2AE35u;
  return v ^ (v >> 16);
}

/// What the inner loop needs of a key, for one run of 2^32 indices.
struct RunKey {
  protocol::u32 a, b, c;
};

/// Run key of indices [run << 32, (run + 1) << 32): the fields are absorbed one by one, golden ratio between
/// them.
constexpr RunKey run_key(const Key& key, protocol::u64 run) {
  constexpr protocol::u64 kGolden = 0x9E3779B97F4A7C15ull;
  protocol::u64 v = mix64(key.seed + kGolden);
  v = mix64(v ^ (static_cast<protocol::u64>(key.stream) << 32 | static_cast<protocol::u32>(key.rank)));
  v = mix64((v + kGolden) ^ (static_cast<protocol::u64>(static_cast<protocol::u32>(key.layer)) << 32));
  v = mix64((v + kGolden) ^ run);
  const protocol::u64 w = mix64(v + kGolden);
  return RunKey{static_cast<protocol::u32>(v), static_cast<protocol::u32>(v >> 32),
                static_cast<protocol::u32>(w)};
}

/// The two hash words of element `index`.
struct HashPair {
  protocol::u32 first, second;
};

constexpr HashPair hash_pair(const Key& key, protocol::u64 index) {
  const RunKey run = run_key(key, index >> 32);
  const protocol::u32 mixed = mix32(static_cast<protocol::u32>(index) ^ run.a);
  return HashPair{mix32(mixed + run.b), mix32(mixed ^ run.c)};
}

/// Bell shape from a pair: the sum of its four 16-bit halves less its mean, -131070..131070, standard
/// deviation kBellDeviation (four uniform parts: no tail beyond 3.46 deviations, which bf16 inputs do not
/// need).
constexpr protocol::i32 bell(HashPair pair) {
  return static_cast<protocol::i32>((pair.first & 0xFFFFu) + (pair.first >> 16) + (pair.second & 0xFFFFu) +
                                    (pair.second >> 16)) -
         131070;
}
inline constexpr double kBellDeviation = 37837.22;  // sqrt(4 * (2^32 - 1) / 12)

}  // namespace moetail::verify
