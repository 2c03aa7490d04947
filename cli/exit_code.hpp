// SPDX-License-Identifier: Apache-2.0
// The exit codes of the command, and the one place where an error becomes one.
#pragma once

#include "base/error.hpp"

namespace moetail::cli {

enum ExitCode : int {
  kAllPassed = 0,
  kCheckFailed = 1,
  kBadInput = 2,  ///< bad usage, a bad argument, a bad file, or something this machine or build cannot do
  kFault = 3,     ///< anything that went wrong while running what was asked for rightly
};

constexpr ExitCode exit_code_of(Code code) {
  switch (code) {
    case Code::ok: return kAllPassed;
    case Code::invalid_argument:
    case Code::unsupported:
    case Code::file: return kBadInput;
    case Code::call_order:
    case Code::busy:
    case Code::fault:
    case Code::resource:
    case Code::internal: break;
  }
  return kFault;
}

/// The name of an error code in the JSON report.
constexpr const char* code_name(Code code) {
  switch (code) {
    case Code::ok: return "ok";
    case Code::invalid_argument: return "invalid_argument";
    case Code::unsupported: return "unsupported";
    case Code::call_order: return "call_order";
    case Code::busy: return "busy";
    case Code::file: return "file";
    case Code::fault: return "fault";
    case Code::resource: return "resource";
    case Code::internal: return "internal";
  }
  return "unknown";
}

}  // namespace moetail::cli
