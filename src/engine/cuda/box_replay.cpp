// SPDX-License-Identifier: Apache-2.0
// Replay: one rank's mailboxes as its peers would have filled them, in all three slots. Its kernels re-arm only what is its own, so that
// the peers' part serves every call of this batch and mode.
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <vector>

#include "base/error.hpp"
#include "engine/cuda/box_group.hpp"
#include "protocol/header.hpp"
#include "protocol/numerics.hpp"
#include "protocol/sentinel.hpp"

namespace moetail::cuda {
namespace {

using engine::SentRows;
using engine::u16;
using protocol::Region;
using protocol::Shape;

constexpr u16 kEmptyHalf = 0xFFFF;  // two of them are the sentinel: nothing here yet

/// Copies host rows into one place of a box, cleaned as a publisher does it.
class Filler {
 public:
  Filler(const Stream& stream, const protocol::BoxView& view) : stream_(stream), view_(view) {}

  void publish(Region region, int slot, int source, std::vector<u16> rows) const {
    for (std::size_t i = 0; i + 1 < rows.size(); i += 2)
      if (rows[i] == kEmptyHalf && rows[i + 1] == kEmptyHalf)
        rows[i] = rows[i + 1] = protocol::kCleanedWord & 0xFFFFu;
    copy(region, slot, source, rows.data(), rows.size() * sizeof(u16));
  }
  /// As it is, sentinels too.
  void copy(Region region, int slot, int source, const void* from, std::size_t bytes) const {
    stream_.copy(view_.mine<void>(region, slot, source, 0), from, bytes);
    stream_.synchronize();  // `from` may go now
  }

 private:
  const Stream& stream_;
  const protocol::BoxView& view_;
};

/// Columns [begin, begin + count) of rows of `width`.
std::vector<u16> columns(const u16* rows, int batch, int width, int begin, int count) {
  std::vector<u16> part;
  for (int token = 0; token < batch; ++token) {
    const u16* const from = rows + static_cast<std::size_t>(token) * static_cast<std::size_t>(width) + begin;
    part.insert(part.end(), from, from + count);
  }
  return part;
}

/// What the owners of column chunks hand out: the fp32 sum in rank order, rounded once.
std::vector<u16> rounded_sum(int batch, const Shape& shape, std::span<const SentRows> ranks) {
  const std::size_t size = static_cast<std::size_t>(batch) * static_cast<std::size_t>(shape.latent);
  std::vector<u16> sum(size);
  for (std::size_t i = 0; i < size; ++i) {
    float x = protocol::f32_from_bf16(ranks[0].partial[i]);
    for (std::size_t rank = 1; rank < ranks.size(); ++rank)
      x += protocol::f32_from_bf16(ranks[rank].partial[i]);
    sum[i] = protocol::bf16_from_f32(x);
  }
  return sum;
}

/// Makes this rank's own columns empty: it publishes them itself.
void empty_columns(std::vector<u16>& rows, int batch, int width, int begin, int count) {
  for (int token = 0; token < batch; ++token) {
    const auto first = rows.begin() + static_cast<std::ptrdiff_t>(token) * width + begin;
    std::fill(first, first + count, kEmptyHalf);
  }
}

}  // namespace

void Box::fill_peers(int batch, Mode mode, std::span<const SentRows> ranks) {
  if (!group_.is_replay())
    base::fail(Code::unsupported, "fill_peers: a box whose peers run: accepted is a box of World::replay");
  const Shape& shape = view_.layout.shape;
  const Filler filler(group_.main(), view_);
  const protocol::Header header{static_cast<protocol::u32>(batch), static_cast<protocol::u32>(mode), 0,
                                protocol::hash_shape(shape, std::bit_cast<protocol::u32>(shape.eps))};
  const protocol::u64 word = protocol::pack_header(header);
  for (int peer = 0; peer < shape.ranks; ++peer) {
    if (peer == rank_) continue;
    const SentRows& sent = ranks[static_cast<std::size_t>(peer)];
    for (int slot = 0; slot < protocol::kSlots; ++slot) {
      if (mode == Mode::twoshot)
        filler.publish(Region::recv, slot, peer,
                       columns(sent.partial, batch, shape.latent, rank_ * shape.chunk(), shape.chunk()));
      else
        filler.publish(Region::latent, slot, peer,
                       columns(sent.partial, batch, shape.latent, 0, shape.latent));
      filler.publish(Region::shared, slot, peer,
                     columns(sent.shared, batch, shape.hidden, rank_ * shape.shard(), shape.shard()));
      filler.copy(Region::header, slot, peer, &word, sizeof word);
    }
  }
  if (mode == Mode::twoshot) {
    std::vector<u16> sum = rounded_sum(batch, shape, ranks);
    empty_columns(sum, batch, shape.latent, rank_ * shape.chunk(), shape.chunk());
    for (int slot = 0; slot < protocol::kSlots; ++slot)
      filler.copy(Region::gather, slot, 0, sum.data(), sum.size() * sizeof(u16));
  }
  // Peers' columns of the output are never written here: zeros stand for them, so that a consumer finds whole rows.
  std::vector<u16> out(static_cast<std::size_t>(batch) * static_cast<std::size_t>(shape.hidden), 0);
  empty_columns(out, batch, shape.hidden, rank_ * shape.shard(), shape.shard());
  filler.copy(Region::out, 0, 0, out.data(), out.size() * sizeof(u16));
}

}  // namespace moetail::cuda
