// SPDX-License-Identifier: Apache-2.0
// A program out of a configuration: launches in the order that src/protocol/order.hpp describes, over the protocol's own functions.
// The one source of the explorer that is compiled anew for every safeguard left out.
#pragma once

#include <memory>

#include "verify/explore/config.hpp"
#include "verify/explore/machine.hpp"

namespace moetail::explore {

std::unique_ptr<Program> make_program(const Config& config);

/// The safeguard that this build leaves out, as a case is named ("third_slot"), or "".
const char* missing_safeguard();

}  // namespace moetail::explore
