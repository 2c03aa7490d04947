// SPDX-License-Identifier: Apache-2.0
// A loaded kernel and its launch.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "engine/cuda/context.hpp"
#include "engine/cuda/stream.hpp"

namespace moetail::cuda {

/// The geometry of a launch, and how it follows what is before it in its stream.
struct Launch {
  unsigned grid = 1;     ///< blocks, over all clusters
  unsigned cluster = 1;  ///< blocks a cluster; divides `grid`. Above 8 the kernel must allow_large_clusters
  unsigned threads = 1;  ///< a block
  std::size_t shared_bytes = 0;  ///< dynamic
  /// May start when its predecessor triggers, and waits itself (griddepcontrol.wait) before it touches what that one writes.
  bool dependent = false;
  /// All blocks resident together or an error, never a hang: loopback. Excludes `dependent`.
  bool cooperative = false;
};

/// What the driver says of a loaded kernel.
struct KernelFacts {
  int num_registers = 0;        ///< a thread
  std::size_t local_bytes = 0;  ///< a thread: stack and spills
  std::size_t static_shared_bytes = 0;
  int max_threads = 0;     ///< a block
  int binary_version = 0;  ///< 90 for sm_90
};

/// One entry of a loaded module; the module is unloaded with its last kernel.
class Kernel {
 public:
  /// Loads a cubin (or PTX) and looks up the entry `name`. Throws Code::unsupported where the image does not fit the device or
  /// is newer than the driver. Not while a stream of this thread is capturing.
  Kernel(ContextRef context, std::span<const std::byte> image, std::string name);

  const std::string& name() const { return name_; }
  const ContextRef& context() const;
  KernelFacts facts() const;

  // Attributes of the kernel, set once after loading.
  void allow_dynamic_shared(std::size_t bytes);
  /// How much of the SM's L1 is shared memory, 0 to 100. 100 lets the next kernel's block be resident beside this one's.
  void prefer_shared_carveout(int percent);
  /// Clusters of up to 16 blocks, which not every device has.
  void allow_large_clusters();

  /// How many clusters of this launch the device holds at once; blocks, where cluster = 1. Spinning on another block is safe only
  /// up to here.
  int max_resident_clusters(const Launch& launch) const;

  /// Enqueues a launch. `args` holds one pointer a parameter, each to a value of exactly the parameter's type. Throws
  /// Code::resource when a cooperative launch does not fit, naming the geometry.
  void launch(const Launch& launch, const Stream& stream, std::span<const void* const> args) const;

  /// The same with the parameters themselves, which must have exactly the kernel's types.
  template <typename... Parameters>
  void launch_with(const Launch& launch, const Stream& stream, const Parameters&... parameters) const {
    const std::array<const void*, sizeof...(Parameters)> args = {static_cast<const void*>(&parameters)...};
    this->launch(launch, stream, args);
  }

 private:
  class Loaded;
  void set(abi::FunctionAttribute which, int value, const char* what);

  std::shared_ptr<const Loaded> module_;
  abi::Function function_ = nullptr;
  std::string name_;
};

}  // namespace moetail::cuda
