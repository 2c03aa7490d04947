// SPDX-License-Identifier: Apache-2.0
#include "runtime/c_api_guard.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <string_view>
#include <system_error>

namespace moetail::c_api {
namespace {

// Fixed, so that running out of memory can be told without more of it. The longest text of ours names a file.
constexpr std::size_t kTextBytes = 2048;
thread_local std::array<char, kTextBytes> error_text{};
thread_local int functions_running = 0;

moetail_status fail_with(Code code, std::string_view text) noexcept {
  constexpr std::string_view kCut = "...";
  const std::size_t room = kTextBytes - 1, length = std::min(text.size(), room);
  std::memcpy(error_text.data(), text.data(), length);
  if (text.size() > room) std::memcpy(error_text.data() + room - kCut.size(), kCut.data(), kCut.size());
  error_text[length] = '\0';
  return static_cast<moetail_status>(code);
}

}  // namespace

moetail_status status_of_current_exception() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return fail_with(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return fail_with(Code::resource, "memory: the machine has no more of it");
  } catch (const std::system_error& error) {
    return fail_with(Code::resource, error.what());  // a thread that could not be started
  } catch (const std::exception& error) {
    return fail_with(Code::internal, error.what());
  } catch (...) {
    return fail_with(Code::internal, "an exception of unknown type");
  }
}

void check_outside_of_streams(const char* what) {
  if (functions_running > 0)
    base::fail(Code::call_order,
               "{}: called by a function that a stream runs: accepted is a call from outside of streams",
               what);
}

OnStream::OnStream() {
  ++functions_running;
}
OnStream::~OnStream() {
  --functions_running;
}

}  // namespace moetail::c_api

const char* moetail_last_error(void) noexcept {
  return moetail::c_api::error_text.data();
}
