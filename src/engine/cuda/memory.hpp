// SPDX-License-Identifier: Apache-2.0
// Memory that owns itself: on the device, and on the host where the device sees it.
#pragma once

#include <cstddef>

#include "engine/cuda/context.hpp"

namespace moetail::cuda {

/// One allocation on the device, 256-byte aligned, not initialized. Freeing waits for the device, as cuMemFree does.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// Throws Code::resource when the device is full; bytes = 0 is Code::invalid_argument.
  DeviceMemory(ContextRef context, std::size_t bytes);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;

  abi::DevicePtr address() const { return address_; }
  /// The address as a kernel's pointer argument. Not to be dereferenced on the host.
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(address_);
  }
  std::size_t bytes() const { return bytes_; }
  explicit operator bool() const { return address_ != 0; }

 private:
  ContextRef context_;
  abi::DevicePtr address_ = 0;
  std::size_t bytes_ = 0;
};

/// Pinned host memory that is mapped into the device, zeroed. Reads and writes of the device cross the bus.
class MappedHostMemory {
 public:
  MappedHostMemory() = default;
  /// Throws Code::resource when no memory can be pinned; bytes = 0 is Code::invalid_argument.
  MappedHostMemory(ContextRef context, std::size_t bytes);
  ~MappedHostMemory();
  MappedHostMemory(MappedHostMemory&& other) noexcept;
  MappedHostMemory& operator=(MappedHostMemory&& other) noexcept;

  template <typename T>
  T* host() const {
    return static_cast<T*>(host_);
  }
  /// The same memory as the device addresses it.
  template <typename T>
  T* device() const {
    return reinterpret_cast<T*>(device_address_);
  }
  abi::DevicePtr device_address() const { return device_address_; }
  std::size_t bytes() const { return bytes_; }
  explicit operator bool() const { return host_ != nullptr; }

 private:
  ContextRef context_;
  void* host_ = nullptr;
  abi::DevicePtr device_address_ = 0;
  std::size_t bytes_ = 0;
};

/// Whether the driver knows the address: memory of a device, managed memory, or pinned host memory. A fraction of a microsecond.
bool is_device_address(const Context& context, const void* address);

}  // namespace moetail::cuda
