// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/driver.hpp"

#include <dlfcn.h>

#include <cstring>
#include <optional>
#include <string_view>

#include "base/env.hpp"
#include "base/error.hpp"

namespace moetail::cuda {
namespace {

using abi::Result;

Code code_of(Result result) {
  switch (result) {
    case Result::out_of_memory:
    case Result::launch_out_of_resources:
    case Result::cooperative_launch_too_large: return Code::resource;
    case Result::ecc_uncorrectable:
    case Result::illegal_address:
    case Result::launch_timeout:
    case Result::assert_failed:
    case Result::hardware_stack_error:
    case Result::illegal_instruction:
    case Result::misaligned_address:
    case Result::invalid_address_space:
    case Result::invalid_pc:
    case Result::launch_failed: return Code::fault;
    case Result::no_device:
    case Result::invalid_device:
    case Result::invalid_image:
    case Result::no_binary_for_gpu:
    case Result::unsupported_ptx_version:
    case Result::not_supported:
    case Result::system_driver_mismatch: return Code::unsupported;
    case Result::stream_capture_unsupported:
    case Result::stream_capture_invalidated:
    case Result::stream_capture_merge:
    case Result::stream_capture_unjoined: return Code::call_order;
    default: return Code::internal;
  }
}

std::string_view file_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

}  // namespace

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string Driver::result_text(Result result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (get_error_name(result, &name) != Result::success || name == nullptr)
    return fmt::format("error {}, which this driver has no name for", static_cast<int>(result));
  if (get_error_string(result, &text) != Result::success || text == nullptr) return name;
  return fmt::format("{} ({})", name, text);
}

void Driver::fail(Result result, CallSite site, const std::string& arguments) const {
  base::fail(code_of(result), "{}({}): {} [{}:{}]", site.call, arguments, result_text(result),
             file_name(site.file), site.line);
}

std::shared_ptr<const Driver> Driver::load(const std::string& library) {
  // Not closed again: a driver that was initialized has threads, and must not be unmapped under them.
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const reason = dlerror();
    base::fail(Code::unsupported, "no CUDA driver: {}", reason != nullptr ? reason : library.c_str());
  }
  std::shared_ptr<Driver> driver(new Driver);
  driver->library_ = library;
  const char* missing = nullptr;
  const auto find = [&](auto& member, const char* symbol) {
    void* const found = dlsym(handle, symbol);
    if (found == nullptr && missing == nullptr) missing = symbol;
    std::memcpy(&member, &found, sizeof member);
  };
#define MOETAIL_FIND(member, symbol, parameters) find(driver->member, #symbol);
  MOETAIL_CUDA_DRIVER_FUNCTIONS(MOETAIL_FIND)
#undef MOETAIL_FIND
  // The version first: an old driver lacks symbols, and its age is the better reason.
  if (driver->driver_get_version != nullptr) driver->driver_get_version(&driver->version_);
  if (driver->version_ > 0 && driver->version_ < kOldestDriver)
    base::fail(Code::unsupported, "the CUDA driver ({}) is of CUDA {}: accepted is {} or newer", library,
               version_text(driver->version_), version_text(kOldestDriver));
  if (missing != nullptr)
    base::fail(Code::unsupported,
               "the CUDA driver ({}) has no function {}: accepted is a driver of CUDA {} or newer", library,
               missing, version_text(kOldestDriver));
  const Result result = driver->init(0);
  if (result != Result::success)
    base::fail(Code::unsupported, "the CUDA driver ({}) does not start: cuInit: {}", library,
               driver->result_text(result));
  return driver;
}

std::shared_ptr<const Driver> Driver::of_machine() {
  struct Loaded {
    std::shared_ptr<const Driver> driver;
    std::optional<Error> error;
  };
  static const Loaded loaded = [] {
    Loaded result;
    try {
      result.driver = load(base::read_env(base::kCudaDriver).value_or(kDriverSoname));
    } catch (const Error& error) {
      result.error = error;
    }
    return result;
  }();
  if (loaded.error) throw Error(*loaded.error);
  return loaded.driver;
}

}  // namespace moetail::cuda
