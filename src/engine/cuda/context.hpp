// SPDX-License-Identifier: Apache-2.0
// One device: its primary context, which it shares with PyTorch and the CUDA runtime, and its facts.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "engine/cuda/driver.hpp"

namespace moetail::cuda {

/// What plans and budgets ask of a device. Bytes are bytes, counts are per device unless they say otherwise.
struct DeviceFacts {
  std::string name;
  std::string uuid;  ///< as nvidia-smi prints it: GPU-xxxxxxxx-...
  int capability_major = 0;
  int capability_minor = 0;
  int num_sms = 0;
  int warp_size = 0;
  int max_threads_per_block = 0;
  int max_threads_per_sm = 0;
  int registers_per_sm = 0;
  std::size_t l2_bytes = 0;
  std::size_t memory_bytes = 0;
  std::size_t shared_bytes_per_block = 0;  ///< the most a block can have, by opting in
  std::size_t shared_bytes_per_sm = 0;
  std::size_t reserved_shared_bytes_per_block = 0;  ///< the system's own, on top of what a block asks for
  bool has_clusters = false;
  bool has_cooperative_launch = false;
  bool has_multicast = false;
  bool maps_host_memory = false;

  int capability() const { return 10 * capability_major + capability_minor; }
  /// What NVRTC compiles for: "sm_90a", with the architecture's own instructions.
  std::string arch() const;
};

/// The facts of device `ordinal`; needs no context. Throws Code::invalid_argument where there is no such device.
DeviceFacts device_facts(const Driver& driver, int ordinal);

/// A retained primary context. Everything that lives in it holds a reference, so that it is released last.
class Context {
 public:
  /// Throws Code::unsupported with cuda_support's reason where the device cannot serve.
  static std::shared_ptr<const Context> retain(int ordinal = 0);
  static std::shared_ptr<const Context> retain(std::shared_ptr<const Driver> driver, int ordinal = 0);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Driver& driver() const { return *driver_; }
  const DeviceFacts& facts() const { return facts_; }
  int ordinal() const { return ordinal_; }
  abi::Context handle() const { return handle_; }
  /// Waits for everything on the device that belongs to this context, other people's work too.
  void synchronize() const;

 private:
  Context(std::shared_ptr<const Driver> driver, int ordinal);

  std::shared_ptr<const Driver> driver_;
  DeviceFacts facts_;
  int ordinal_;
  abi::Device device_ = 0;
  abi::Context handle_ = nullptr;
};

using ContextRef = std::shared_ptr<const Context>;

/// Makes a context current on this thread while it lives. Nothing but a look where it is current already. The engine's
/// objects do this themselves.
class ContextScope {
 public:
  explicit ContextScope(const Context& context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const Context& context_;
  bool pushed_ = false;
};

}  // namespace moetail::cuda
