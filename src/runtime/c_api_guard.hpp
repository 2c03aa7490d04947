// SPDX-License-Identifier: Apache-2.0
// The edge where exceptions end: statuses, the calling thread's error text, and the checks of versioned structs.
#pragma once

#include <cstdint>
#include <span>

#include "base/error.hpp"
#include "moetail/moetail.h"

namespace moetail::c_api {

/// The status of the exception that is being handled; its text becomes the calling thread's error text. Allocates
/// nothing. Call it in a catch block only.
moetail_status status_of_current_exception() noexcept;

/// Runs `body`. Every exception becomes a status and this thread's error text.
template <class Body>
moetail_status guarded(Body&& body) noexcept {
  try {
    body();
    return MOETAIL_OK;
  } catch (...) {
    return status_of_current_exception();
  }
}

/// Throws Code::call_order on the thread of a stream that runs a caller's function: `what` would wait for that thread.
void check_outside_of_streams(const char* what);

/// Marks the calling thread as one that runs a caller's function on a stream.
class OnStream {
 public:
  OnStream();
  ~OnStream();
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;
};

template <class T>
void check_out(const char* name, const T* out) {
  if (out == nullptr) base::bad_argument(name, "null", "a pointer to where the result goes");
}

/// A versioned struct that a caller passed as `name`, in or out. Throws Code::invalid_argument for null, for a version
/// that this library does not know and for a size that is not that version's.
template <class Struct>
Struct& checked(const char* name, Struct* given) {
  constexpr std::uint32_t kVersion = 1, kSize = sizeof(Struct);
  if (given == nullptr) base::bad_argument(name, "null", "a pointer to the struct");
  if (given->version != kVersion)
    base::bad_argument(fmt::format("{}: version", name), given->version, fmt::format("{}", kVersion));
  if (given->size != kSize)
    base::bad_argument(fmt::format("{}: size", name), given->size, fmt::format("{} bytes", kSize));
  return *given;
}

/// A caller's buffer. A pointer with count 0 is more likely a forgotten count than a buffer that is meant to be
/// ignored. Throws Code::invalid_argument for it.
template <class T>
std::span<T> buffer(const char* name, T* data, std::uint64_t count) {
  if (data != nullptr && count == 0)
    base::bad_argument(fmt::format("{}: count", name), count,
                       "the number of elements, or a null pointer with count 0");
  return {data, static_cast<std::size_t>(count)};
}

template <class Enum>
Enum checked_enum(const char* name, std::int32_t value, std::int32_t last, const char* accepted) {
  if (value < 0 || value > last) base::bad_argument(name, value, accepted);
  return static_cast<Enum>(value);
}

}  // namespace moetail::c_api
