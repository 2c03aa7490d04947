// SPDX-License-Identifier: Apache-2.0
// What a rank's kernels and its host share: fault record and stop word, in host memory that is mapped into the device. Compiled by
// the host's compiler and by NVRTC.
#pragma once

#include "protocol/fault.hpp"
#include "protocol/words.hpp"

namespace moetail::device {

/// States of HostBlock::fault_state. Only a device of the box writes claimed and written.
inline constexpr protocol::u32 kFaultEmpty = 0;
inline constexpr protocol::u32 kFaultClaimed =
    1;  ///< by the one waiter whose compare-and-swap found it empty
inline constexpr protocol::u32 kFaultWritten =
    2;  ///< release store at system scope, after the record; the host acquires it

/// All zero is a box without fault. Each word that one side polls has a line of its own.
struct HostBlock {
  alignas(128) protocol::u32 fault_state;
  alignas(128) protocol::FaultRecord fault;
  alignas(128) protocol::u32 stop;  ///< not 0: the host wants every wait of this rank to end
};
static_assert(sizeof(protocol::FaultRecord) <= 128 && sizeof(HostBlock) == 384);

}  // namespace moetail::device
