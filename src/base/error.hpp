// SPDX-License-Identifier: Apache-2.0
// The one exception type of moetail, and the two helpers that give every message the same shape.
#pragma once

#ifndef __CUDACC__  // fmt 9 does not compile under nvcc as C++20, and a user's .cu file needs the type alone
#include <fmt/format.h>
#endif

#include <stdexcept>
#include <string>
#include <string_view>

namespace moetail {

/// What kind of thing went wrong. The numeric values are part of the C ABI (moetail.h) and never change.
enum class Code : int {
  ok = 0,
  invalid_argument = 1,  ///< an argument outside what is accepted; nothing was done
  unsupported = 2,       ///< right in itself, but not on this machine, engine or build
  call_order = 3,        ///< calls in an order the protocol forbids, or an outdated view
  busy = 4,              ///< a box used from two threads or two main streams at once
  file = 5,              ///< a file is missing, unreadable, truncated or ill-formed
  fault = 6,             ///< a run-time fault: a peer died, stalled or disagreed; see FaultReport
  resource = 7,          ///< memory or another resource of the machine ran out
  internal = 8,          ///< a bug of moetail
};

/// Thrown by everything behind the C++ door. `what()` names the argument, its value and what is accepted.
class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Code code() const noexcept { return code_; }

 private:
  Code code_;
};

#ifndef __CUDACC__
namespace base {

/// Throws Code::invalid_argument with "NAME = VALUE: accepted is ACCEPTED".
template <typename T>
[[noreturn]] void bad_argument(std::string_view name, const T& value, std::string_view accepted) {
  throw Error(Code::invalid_argument, fmt::format("{} = {}: accepted is {}", name, value, accepted));
}

/// Throws `code` with a formatted message.
template <typename... Args>
[[noreturn]] void fail(Code code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace base
#endif
}  // namespace moetail
