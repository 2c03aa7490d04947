// SPDX-License-Identifier: Apache-2.0
// Generators of arrays: bells, awkward values, routing weights, route maps, column samples.
#include "verify/generate.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

#include "base/error.hpp"
#include "protocol/numerics.hpp"
#include "protocol/sentinel.hpp"
#include "verify/fill_kernel.hpp"
#include "verify/parallel.hpp"

namespace moetail::verify {
namespace {

// Awkward values and weights must not repeat the bits that shaped the element they replace.
constexpr u64 kSpecialSalt = 0x5350454349414C53ull;

struct Steps {
  i32 offset;
  float scale;
};

Steps steps_of(Normal normal) {
  const double scale = static_cast<double>(normal.deviation) / kBellDeviation;
  const double offset = std::nearbyint(static_cast<double>(normal.mean) / scale);
  // Above 2^24 the conversion to fp32 would round, and the definition promises that it does not.
  if (!(normal.deviation > 0.0f) || !(std::abs(offset) < (1 << 24) - 131070))
    base::bad_argument("normal.deviation", normal.deviation, "above 0, and not below 1/400 of the mean");
  return Steps{static_cast<i32>(offset), static_cast<float>(scale)};
}

u32 random_below(const Key& key, u64 index, u32 limit) {
  return static_cast<u32>(static_cast<u64>(hash_pair(key, index).first) * limit >> 32);
}

bool chance(u32 word, double share) {
  return static_cast<double>(word) < share * 4294967296.0;
}

u16 subnormal(u32 word) {
  return static_cast<u16>((word & 0x8000u) | (1 + word % 0x7Fu));
}

u32 near_sentinel(u32 word) {
  constexpr u32 kWords[] = {0xFFFFFFFEu, 0xFFFEFFFFu, 0x7FFFFFFFu, 0xFFFF7FFFu, 0xFFFF0000u,
                            0x0000FFFFu, 0xFFFF3F80u, 0x3F80FFFFu, 0xFFBFFFFFu, protocol::kCleanedWord};
  return kWords[word % std::size(kWords)];
}

/// The pair (low half: even element) that replaces `pair`.
u32 special_pair(u32 kind, u32 word, u32 pair) {
  const bool upper = (word >> 31) != 0;  // kinds that touch one element pick a half
  const auto put = [&](u16 value) {
    return upper ? (pair & 0x0000FFFFu) | static_cast<u32>(value) << 16 : (pair & 0xFFFF0000u) | value;
  };
  const u16 sign = static_cast<u16>(word & 0x8000u);
  switch (kind) {
    case special::kMinusZero: return put(0x8000);
    case special::kPlusZero: return put(0x0000);
    case special::kSubnormal: return put(subnormal(word));
    case special::kZeroPair: return 0x80000000u;
    case special::kInfinity: return put(static_cast<u16>(sign | 0x7F80u));
    case special::kNan: return put(static_cast<u16>(sign | 0x7F80u | (1 + (word >> 16) % 0x7Fu)));
    case special::kSentinel: return protocol::kEmptyWord;
    default: return near_sentinel(word);
  }
}

template <typename T>
void fill_weights_of(const Key& key, int top_k, u64 begin, std::span<T> weights) {
  if (top_k < 1) base::bad_argument("top_k", top_k, "1 or more");
  const u64 num_tokens = weights.size() / static_cast<u64>(top_k);
  std::vector<double> raw(static_cast<std::size_t>(top_k));
  for (u64 token = 0; token < num_tokens; ++token) {
    for (int k = 0; k < top_k; ++k) {
      const u64 index = (begin + token) * static_cast<u64>(top_k) + static_cast<u64>(k);
      raw[k] = 0.25 + hash_pair(key, index).first / 4294967296.0;
    }
    const double total = std::accumulate(raw.begin(), raw.end(), 0.0);
    for (int k = 0; k < top_k; ++k) {
      const float weight = static_cast<float>(raw[k] / total);
      T& out = weights[token * static_cast<u64>(top_k) + static_cast<u64>(k)];
      if constexpr (std::is_same_v<T, float>)
        out = weight;
      else
        out = protocol::bf16_from_f32(weight);
    }
  }
}

}  // namespace

void fill_normal(const Key& key, Normal normal, u64 begin, std::span<u16> out) {
  const Steps steps = steps_of(normal);
  std::size_t done = 0;
  while (done < out.size()) {
    const u64 index = begin + done;
    const u64 to_next_run = (u64{1} << 32) - (index & 0xFFFFFFFFu);
    const std::size_t count = std::min<u64>(out.size() - done, to_next_run);
    fill_bell(run_key(key, index >> 32), static_cast<u32>(index), steps.offset, steps.scale,
              out.data() + done, count);
    done += count;
  }
}

void fill_normal_parallel(const Key& key, Normal normal, std::span<u16> out, int threads) {
  for_parts(
      out.size(), 4096,
      [&](int, u64 begin, u64 end) { fill_normal(key, normal, begin, out.subspan(begin, end - begin)); },
      threads_for(out.size(), threads));
}

u16 normal_element(const Key& key, Normal normal, u64 index) {
  const Steps steps = steps_of(normal);
  return bell_element(hash_pair(key, index), steps.offset, steps.scale);
}

void sprinkle(const Key& key, Specials specials, u64 begin, std::span<u16> out) {
  if (!(specials.share >= 0.0 && specials.share <= 1.0))
    base::bad_argument("specials.share", specials.share, "0 to 1");
  if ((specials.kinds & ~special::kAll) != 0)
    base::bad_argument("specials.kinds", specials.kinds, "kinds of namespace special");
  std::vector<u32> kinds;
  for (u32 kind = 1; kind <= special::kAll; kind <<= 1) {
    if (specials.kinds & kind) kinds.push_back(kind);
  }
  if (kinds.empty() || out.empty()) return;
  const Key own{key.seed ^ kSpecialSalt, key.stream, key.rank, key.layer};
  for (u64 pair = begin / 2; 2 * pair < begin + out.size(); ++pair) {
    const HashPair hash = hash_pair(own, pair);
    if (!chance(hash.first, specials.share)) continue;
    const u64 even = 2 * pair;
    const auto in_span = [&](u64 index) { return index >= begin && index < begin + out.size(); };
    u32 word = in_span(even) ? out[even - begin] : 0;
    if (in_span(even + 1)) word |= static_cast<u32>(out[even + 1 - begin]) << 16;
    word = special_pair(kinds[mix32(hash.second ^ 0xA5A5A5A5u) % kinds.size()], hash.second, word);
    if (in_span(even)) out[even - begin] = static_cast<u16>(word);
    if (in_span(even + 1)) out[even + 1 - begin] = static_cast<u16>(word >> 16);
  }
}

void fill_weights(const Key& key, int top_k, u64 begin, std::span<float> weights) {
  fill_weights_of(key, top_k, begin, weights);
}
void fill_weights(const Key& key, int top_k, u64 begin, std::span<u16> weights) {
  fill_weights_of(key, top_k, begin, weights);
}

RouteMap make_route_map(const Key& key, int batch, int top_k, double dropped_share, int spare_rows) {
  if (!(dropped_share >= 0.0 && dropped_share <= 1.0))
    base::bad_argument("dropped_share", dropped_share, "0 to 1");
  if (batch < 0 || top_k < 1 || spare_rows < 0)
    base::bad_argument("batch, top_k, spare_rows", fmt::format("{}, {}, {}", batch, top_k, spare_rows),
                       "batch and spare_rows of 0 or more, top_k of 1 or more");
  constexpr i32 kNegative[] = {
      -1, -2, -896, -1000000, std::numeric_limits<i32>::min(), std::numeric_limits<i32>::min() + 1};
  const u64 num_routes = static_cast<u64>(batch) * static_cast<u64>(top_k);
  RouteMap result;
  result.map.resize(num_routes);
  for (u64 route = 0; route < num_routes; ++route) {
    const HashPair hash = hash_pair(key, route);
    const bool dropped = chance(hash.first, dropped_share);
    result.map[route] = dropped ? kNegative[hash.second % std::size(kNegative)] : 0;
    result.num_rows += dropped ? 0 : 1;
  }
  result.num_rows += spare_rows;
  std::vector<i32> rows(static_cast<std::size_t>(result.num_rows));
  std::iota(rows.begin(), rows.end(), 0);
  for (u32 i = static_cast<u32>(rows.size()); i > 1; --i)
    std::swap(rows[i - 1], rows[random_below(key, (u64{1} << 40) + i, i)]);
  std::size_t next = 0;
  for (i32& row : result.map) {
    if (row >= 0) row = rows[next++];
  }
  return result;
}

std::vector<i32> sample_columns(u64 seed, int hidden, int num_ranks, int count) {
  if (num_ranks < 1 || hidden < 8 * num_ranks || hidden % (8 * num_ranks) != 0)
    base::bad_argument("hidden", hidden, fmt::format("a multiple of 8 * {}", num_ranks));
  const int lines_per_shard = hidden / num_ranks / 8;
  const int wanted = std::clamp((count / 8 + num_ranks - 1) / num_ranks, 1, lines_per_shard);
  std::vector<i32> columns;
  for (int rank = 0; rank < num_ranks; ++rank) {
    std::vector<i32> lines(static_cast<std::size_t>(lines_per_shard));
    std::iota(lines.begin(), lines.end(), rank * lines_per_shard);
    const Key key{seed, Stream::columns, rank, 0};
    for (int i = 0; i < wanted; ++i)
      std::swap(lines[i],
                lines[i + random_below(key, static_cast<u64>(i), static_cast<u32>(lines_per_shard - i))]);
    std::sort(lines.begin(), lines.begin() + wanted);
    for (int i = 0; i < wanted; ++i) {
      for (i32 c = 0; c < 8; ++c) columns.push_back(lines[i] * 8 + c);
    }
  }
  return columns;
}

}  // namespace moetail::verify
