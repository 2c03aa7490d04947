// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/memory.hpp"

#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace moetail::cuda {
namespace {

void check_bytes(std::size_t bytes) {
  if (bytes == 0) base::bad_argument("bytes", bytes, "1 or more");
}

std::size_t free_bytes(const Driver& driver) {
  std::size_t free = 0;
  std::size_t total = 0;
  return driver.mem_get_info(&free, &total) == abi::Result::success ? free : 0;
}

}  // namespace

bool is_device_address(const Context& context, const void* address) {
  const ContextScope scope(context);
  unsigned type = 0;
  // Ordinary host memory is no value that the driver accepts here, and that is the answer.
  return context.driver().pointer_get_attribute(&type, abi::PointerAttribute::memory_type,
                                                reinterpret_cast<abi::DevicePtr>(address)) ==
         abi::Result::success;
}

DeviceMemory::DeviceMemory(ContextRef context, std::size_t bytes)
    : context_(std::move(context)), bytes_(bytes) {
  check_bytes(bytes);
  const ContextScope scope(*context_);
  const Driver& driver = context_->driver();
  const abi::Result result = driver.mem_alloc(&address_, bytes);
  // How much is free is asked for only when that is the question: the answer costs a lock of the driver's.
  if (result != abi::Result::success)
    driver.check(result, "cuMemAlloc", "{} bytes on device {}, {} of {} bytes free", bytes,
                 context_->ordinal(), free_bytes(driver), context_->facts().memory_bytes);
}

DeviceMemory::~DeviceMemory() {
  if (address_ == 0) return;
  try {
    const ContextScope scope(*context_);
    context_->driver().mem_free(address_);
  } catch (...) {  // the context is lost, and its memory with it
  }
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : context_(std::move(other.context_)),
      address_(std::exchange(other.address_, 0)),
      bytes_(std::exchange(other.bytes_, 0)) {}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  DeviceMemory old(std::move(other));
  std::swap(context_, old.context_);
  std::swap(address_, old.address_);
  std::swap(bytes_, old.bytes_);
  return *this;
}

MappedHostMemory::MappedHostMemory(ContextRef context, std::size_t bytes)
    : context_(std::move(context)), bytes_(bytes) {
  check_bytes(bytes);
  const ContextScope scope(*context_);
  const Driver& driver = context_->driver();
  driver.check(driver.mem_host_alloc(&host_, bytes, abi::kHostAllocPortable | abi::kHostAllocDeviceMap),
               "cuMemHostAlloc", "{} bytes, portable and mapped", bytes);
  const abi::Result result = driver.mem_host_get_device_pointer(&device_address_, host_, 0);
  if (result != abi::Result::success) {
    driver.mem_free_host(
        std::exchange(host_, nullptr));  // no destructor runs for an object that was never made
    driver.check(result, "cuMemHostGetDevicePointer", "{} bytes", bytes);
  }
  std::memset(host_, 0, bytes);
}

MappedHostMemory::~MappedHostMemory() {
  if (host_ == nullptr) return;
  try {
    const ContextScope scope(*context_);
    context_->driver().mem_free_host(host_);
  } catch (...) {  // the context is lost, and its memory with it
  }
}

MappedHostMemory::MappedHostMemory(MappedHostMemory&& other) noexcept
    : context_(std::move(other.context_)),
      host_(std::exchange(other.host_, nullptr)),
      device_address_(std::exchange(other.device_address_, 0)),
      bytes_(std::exchange(other.bytes_, 0)) {}

MappedHostMemory& MappedHostMemory::operator=(MappedHostMemory&& other) noexcept {
  MappedHostMemory old(std::move(other));
  std::swap(context_, old.context_);
  std::swap(host_, old.host_);
  std::swap(device_address_, old.device_address_);
  std::swap(bytes_, old.bytes_);
  return *this;
}

}  // namespace moetail::cuda
