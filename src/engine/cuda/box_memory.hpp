// SPDX-License-Identifier: Apache-2.0
// The memory of one rank's box on a GPU: one allocation on the device, one mapped allocation on the host.
#pragma once

#include <optional>
#include <span>

#include "engine/cuda/memory.hpp"
#include "engine/cuda/stream.hpp"
#include "kernels/args.hpp"
#include "protocol/fault.hpp"
#include "protocol/mailbox.hpp"

namespace moetail::cuda {

/// Mailboxes and control words as protocol::Layout places them, on the device; fault record and stop word (kernels::FaultCell) on the
/// host. Must outlive every launch that has its addresses.
class BoxMemory {
 public:
  /// Allocates and zeroes nothing on the device: arm comes first. Throws Code::resource.
  BoxMemory(ContextRef context, const protocol::Layout& layout);

  const protocol::Layout& layout() const { return layout_; }
  /// Start of the box, as every rank's layout offsets count from.
  protocol::u8* device() const { return memory_.as<protocol::u8>(); }
  /// The fault cell as kernels get it.
  kernels::FaultCell* fault_cell() const { return cell_.device<kernels::FaultCell>(); }

  /// Enqueues the arming: every mailbox word becomes the sentinel, every control word 0. Then clears fault and stop, which takes
  /// effect at once: nothing of the box may be running. For a new box, and for recovery by all ranks together.
  void arm(const Stream& stream);

  /// Device addresses of the boxes of all ranks as rank `rank` sees them; `boxes` holds one a rank.
  static protocol::BoxView view(std::span<const BoxMemory* const> boxes, int rank);

  /// The fault record, once it is completely written. Reads host memory alone: never waits, may be called at any time.
  std::optional<protocol::FaultRecord> fault() const;
  /// Ends the waits of a running call, and of all that come until arm.
  void stop();
  bool is_stopped() const;

 private:
  protocol::Layout layout_;
  DeviceMemory memory_;
  MappedHostMemory cell_;
};

}  // namespace moetail::cuda
