// SPDX-License-Identifier: Apache-2.0
// Which process it is, so that a number that has been given to another one since is not taken for it.
#pragma once

#include "protocol/words.hpp"

namespace moetail::transport {

struct ProcessId {
  protocol::u64 pid_namespace = 0;  ///< pids of another namespace say nothing here
  protocol::u64 start_ticks = 0;    ///< since the machine started; 0: not known
  protocol::i32 pid = 0;
};

/// The calling process.
ProcessId this_process();

/// Whether that process has ended, or has been killed and waits for its parent to hear of it. False where nothing can be known.
bool is_gone(const ProcessId& process);

}  // namespace moetail::transport
