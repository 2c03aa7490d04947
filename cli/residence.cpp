// SPDX-License-Identifier: Apache-2.0
#include "cli/residence.hpp"

namespace moetail::cli {

const void* Residence::copy_of(const void* host, std::size_t bytes, int rank) {
  const auto found = copies_.find(host);
  if (found != copies_.end() && found->second.bytes >= bytes) return found->second.buffer.data();
  Copy copy{world_.make_buffer(rank, bytes), bytes};
  const Stream stream = world_.main_stream(rank);
  stream.copy(copy.buffer.data(), host, bytes);
  stream.synchronize();
  return copies_.insert_or_assign(host, std::move(copy)).first->second.buffer.data();
}

Routed Residence::of(const Routed& routed, int rank) {
  Routed there = routed;
  there.rows = of(routed.rows, rank);
  there.map = of(routed.map, rank);
  there.weights_bf16 = of(routed.weights_bf16, rank);
  there.weights_fp32 = of(routed.weights_fp32, rank);
  there.partial = of(routed.partial, rank);
  return there;
}

std::span<Bf16> Residence::output(std::span<Bf16> host, int rank) {
  if (is_host_) return host;
  auto found = outputs_.find(host.data());
  if (found == outputs_.end())
    found =
        outputs_.emplace(host.data(), Output{world_.make_buffer(rank, host.size_bytes()), host, rank}).first;
  return {static_cast<Bf16*>(found->second.buffer.data()), host.size()};
}

void Residence::fetch() {
  for (const auto& [address, output] : outputs_)
    world_.main_stream(output.rank).copy(output.host.data(), output.buffer.data(), output.host.size_bytes());
  for (const auto& [address, output] : outputs_) world_.main_stream(output.rank).synchronize();
}

}  // namespace moetail::cli
