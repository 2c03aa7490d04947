// SPDX-License-Identifier: Apache-2.0
// What the peers of a replayed rank would have put into its mailboxes.
#include <cmath>

#include "protocol/header.hpp"
#include "protocol/numerics.hpp"
#include "protocol/sentinel.hpp"
#include "tests/gpu/rig.hpp"

namespace moetail::gpu {

using protocol::Region;

void Rig::fill_peers(const Call& call, const DeviceInputs& inputs, bool and_own) {
  const auto& box = boxes_.front();
  const protocol::Header header{static_cast<protocol::u32>(call.batch), static_cast<protocol::u32>(call.mode),
                                0,
                                protocol::hash_shape(shape_, __builtin_bit_cast(protocol::u32, shape_.eps))};
  const u64 word = protocol::pack_header(header);
  const auto at = [&](Region region, int slot, int source, int row) {
    return reinterpret_cast<cuda::abi::DevicePtr>(box.device() + layout_.at(region, slot, source, row));
  };
  const auto shard = static_cast<std::size_t>(shape_.shard());
  if (call.mode == Mode::twoshot) fill_chunks(call, inputs, and_own);
  for (int r = 0; r < shape_.ranks; ++r) {
    if (r == replay_rank_ && !and_own) continue;
    const auto& arrays = inputs.host.arrays[static_cast<std::size_t>(r)];
    const auto partial = r == replay_rank_ ? partial_of(call, inputs, r) : arrays.partial;
    std::vector<u16> shards;
    for (int b = 0; b < call.batch; ++b) {
      const u16* row =
          arrays.shared.data() + static_cast<std::size_t>(b) * shape_.hidden + replay_rank_ * shard;
      shards.insert(shards.end(), row, row + shard);
    }
    for (int slot = 0; slot < protocol::kSlots; ++slot) {
      if (call.mode != Mode::twoshot)
        gpu_.stream->copy(at(Region::latent, slot, r, 0), partial.data(), partial.size() * 2);
      gpu_.stream->copy(at(Region::shared, slot, r, 0), shards.data(), shards.size() * 2);
      gpu_.stream->copy(at(Region::header, slot, r, 0), &word, 8);
    }
    gpu_.stream->synchronize();
  }
}

void Rig::fill_chunks(const Call& call, const DeviceInputs& inputs, bool and_own) {
  const auto& box = boxes_.front();
  const auto latent = static_cast<std::size_t>(shape_.latent),
             chunk = static_cast<std::size_t>(shape_.chunk());
  std::vector<float> sum(static_cast<std::size_t>(call.batch) * latent);
  const auto at = [&](Region region, int slot, int source, int row) {
    return reinterpret_cast<cuda::abi::DevicePtr>(box.device() + layout_.at(region, slot, source, row));
  };
  for (int r = 0; r < shape_.ranks; ++r) {
    const auto partial = partial_of(call, inputs, r);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      const float addend = protocol::f32_from_bf16(partial[i]);
      sum[i] = r == 0 ? addend : sum[i] + addend;
    }
    for (int slot = 0; (r != replay_rank_ || and_own) && slot < protocol::kSlots; ++slot)
      for (int b = 0; b < call.batch; ++b)
        gpu_.stream->copy(at(Region::recv, slot, r, b),
                          partial.data() + static_cast<std::size_t>(b) * latent +
                              static_cast<std::size_t>(replay_rank_) * chunk,
                          chunk * 2);
    gpu_.stream->synchronize();
  }
  std::vector<u16> rounded(sum.size());
  for (std::size_t i = 0; i < sum.size(); ++i) rounded[i] = protocol::bf16_from_f32(sum[i]);
  for (int slot = 0; slot < protocol::kSlots; ++slot)
    for (int b = 0; b < call.batch; ++b)
      for (int owner = 0; owner < shape_.ranks; ++owner) {
        if (owner == replay_rank_ && !and_own) continue;
        const std::size_t column = static_cast<std::size_t>(owner) * chunk;
        gpu_.stream->copy(at(Region::gather, slot, 0, b) + column * 2,
                          rounded.data() + static_cast<std::size_t>(b) * latent + column, chunk * 2);
      }
  gpu_.stream->synchronize();
}

std::vector<u16> Rig::partial_of(const Call& call, const DeviceInputs& inputs, int rank) const {
  const auto& input = inputs.host.ranks[static_cast<std::size_t>(rank)];
  const auto latent = static_cast<std::size_t>(shape_.latent);
  std::vector<u16> rows(static_cast<std::size_t>(call.batch) * latent);
  if (input.form == Form::partial) {
    rows.assign(input.partial, input.partial + rows.size());
    return rows;
  }
  for (int b = 0; b < call.batch; ++b)
    for (std::size_t c = 0; c < latent; ++c) {
      float group[4] = {};
      for (int g = 0; g < 4; ++g)
        for (int k = protocol::finalize_group_begin(g, shape_.top_k);
             k < protocol::finalize_group_begin(g + 1, shape_.top_k); ++k)
          if (const u16* row = verify::route_row(input, shape_, b, k))
            group[g] = std::fma(verify::route_weight(input, b, k), protocol::f32_from_bf16(row[c]), group[g]);
      rows[static_cast<std::size_t>(b) * latent + c] =
          protocol::bf16_from_f32(protocol::finalize_join(group[0], group[1], group[2], group[3]));
    }
  return rows;
}

}  // namespace moetail::gpu
