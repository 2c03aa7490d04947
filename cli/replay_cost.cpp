// SPDX-License-Identifier: Apache-2.0
#include "cli/replay_cost.hpp"

#include <fmt/format.h>

namespace moetail::cli {
namespace {

using u64 = std::uint64_t;

constexpr u64 kBf16Bytes = 2, kFp32Bytes = 4;

u64 routed_bytes_a_token(const InputSpec& input) {
  const u64 latent = static_cast<u64>(input.shape.latent), top_k = static_cast<u64>(input.shape.top_k);
  if (input.form == Form::partial) return latent * kBf16Bytes;
  const u64 weight = input.weights == WeightType::fp32 ? kFp32Bytes : kBf16Bytes;
  return top_k * (latent * kBf16Bytes + weight + (input.form == Form::permuted ? kFp32Bytes : 0));
}

/// Of one token. What every rank gets whole leaves in `copies` stores.
u64 mailbox_bytes_a_token(const Configuration& one, u64 copies) {
  const Shape& shape = one.input.shape;
  const u64 latent = static_cast<u64>(shape.latent) * kBf16Bytes, ranks = static_cast<u64>(shape.ranks);
  const u64 hidden = static_cast<u64>(shape.hidden) * kBf16Bytes;
  // Shared partials: a shard to every rank, as many of one's own columns polled, and those re-armed.
  u64 bytes = 3 * hidden;
  if (one.plan.mode == Mode::twoshot) {
    // Chunks sent, polled and re-armed; the sum of one's own put, all of them polled and re-armed.
    bytes += 3 * latent + copies * latent / ranks + 2 * latent;
  } else {
    bytes += copies * latent + 2 * ranks * latent;
  }
  // fp32 sums: written, polled and re-armed once.
  if (one.plan.shares_reduced) bytes += 3 * static_cast<u64>(shape.latent) * kFp32Bytes;
  // The polled slots: filled, polled and re-armed.
  if (one.plan.mode == Mode::front_poll && one.input.form != Form::partial)
    bytes += 3 * (routed_bytes_a_token(one.input) + hidden);
  return bytes;
}

int launches_of(const Configuration& one) {
  switch (one.plan.mode) {
    case Mode::publish: return 3;  // push, publish, wave
    case Mode::front_poll: return one.input.form == Form::partial ? 1 : 2;
    default: return 1;
  }
}

}  // namespace

ReplayCost replay_cost(const Configuration& one, bool takes) {
  const Shape& shape = one.input.shape;
  const u64 batch = static_cast<u64>(one.input.batch), shard = static_cast<u64>(shape.shard());
  const u64 hidden = static_cast<u64>(shape.hidden) * kBf16Bytes;
  const u64 copies = one.put == Put::unicast ? static_cast<u64>(shape.ranks) : 1;
  ReplayCost cost;
  cost.weight_bytes = (shard + 1) * static_cast<u64>(shape.latent) * kBf16Bytes;
  cost.input_bytes = batch * (routed_bytes_a_token(one.input) + hidden);
  if (one.input.residual) cost.input_bytes += batch * shard * kBf16Bytes;
  cost.mailbox_bytes = batch * mailbox_bytes_a_token(one, copies);
  cost.output_bytes = batch * shard * kBf16Bytes * copies;
  if (takes) cost.output_bytes += 3 * batch * hidden;
  cost.launches = launches_of(one) + (takes ? 1 : 0);
  cost.polls = 1;
  if (one.plan.mode == Mode::twoshot || one.plan.shares_reduced) ++cost.polls;
  if (one.plan.mode == Mode::front_poll) ++cost.polls;
  if (takes) ++cost.polls;
  return cost;
}

Floor replay_floor(const ReplayCost& cost, const bench::GpuCeilings& ceilings) {
  Floor floor;
  floor.bytes_us = 1e6 * static_cast<double>(cost.bytes()) / ceilings.bytes_per_second();
  floor.chain_us = cost.launches * ceilings.dependent_launch_us + cost.polls * ceilings.publish_us +
                   cost.exchanges * ceilings.exchange_us;
  return floor;
}

std::string replay_floor_text(const bench::GpuCeilings& ceilings) {
  return fmt::format(
      "floor = max(bytes / {:.0f} GB/s, launches x {:.2f} us + polls x {:.2f} us + {:.2f} us), bytes = "
      "weights + inputs + "
      "mailboxes published, polled and re-armed + output of one rank; front 1 launch and 1 poll, front_poll "
      "2 and 2, publish 3 "
      "and 1 or, with shared sums, 2, twoshot 1 and 2, a take 1 and 1 more.\nMeasured in this run, the best "
      "of a few: {}",
      ceilings.bytes_per_second() / 1e9, ceilings.dependent_launch_us, ceilings.publish_us,
      ceilings.exchange_us, ceilings.text());
}

}  // namespace moetail::cli
