// SPDX-License-Identifier: Apache-2.0
// The benchmark's GPU: a stream of its own, that worlds borrow too, the benchmark's kernels, and a clock that the device reads.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "engine/cuda/kernel_store.hpp"
#include "engine/cuda/memory.hpp"
#include "engine/cuda/stream.hpp"

namespace moetail::bench {

using Bf16 = std::uint16_t;

/// One of the benchmark's kernels and how it is launched.
struct GpuKernel {
  std::shared_ptr<const cuda::Kernel> kernel;
  cuda::Launch launch;
};

class Gpu {
 public:
  /// The machine's first device. Throws Code::unsupported with the reason.
  Gpu();

  const cuda::ContextRef& context() const { return context_; }
  const cuda::DeviceFacts& facts() const { return context_->facts(); }
  const cuda::Stream& stream() const { return *stream_; }
  /// For WorldOptions::cuda_stream: what a world enqueues can then be captured and timed here.
  void* native_stream() const { return stream_->handle(); }

  /// Kernel `entry` of `source`, one of the texts below, loaded.
  GpuKernel kernel(const char* source, const char* entry, const cuda::Launch& launch,
                   const std::vector<std::string>& defines = {}) const;
  /// Enqueues it; `values` are its parameters, in order and of their exact types.
  template <typename... Values>
  void launch(const GpuKernel& kernel, const Values&... values) const {
    const void* const parameters[] = {&values..., nullptr};
    kernel.kernel->launch(kernel.launch, *stream_, {parameters, sizeof...(Values)});
  }

  cuda::DeviceMemory allocate(std::size_t bytes) const { return {context_, bytes}; }
  /// Returns when it has arrived.
  void upload(const cuda::DeviceMemory& to, std::size_t offset, const void* from, std::size_t bytes) const;
  void download(void* to, const void* from, std::size_t bytes) const;

 private:
  cuda::ContextRef context_;
  std::unique_ptr<cuda::KernelStore> store_;
  std::unique_ptr<cuda::Stream> stream_;
};

/// The texts of bench/cuda/*.cu, as they are compiled.
extern const char* const kProbeKernels;
extern const char* const kUnfusedKernels;

/// Work captured once and replayed at will. The Gpu must outlive it.
class TimedGraph {
 public:
  /// Calls `enqueue`, whose work on gpu's stream becomes the graph instead of running. What it launches must be loaded before.
  TimedGraph(const Gpu& gpu, const std::function<void()>& enqueue);

  /// Replays it once and waits; microseconds from its begin to its end by the device's own clock.
  double replay() const;
  /// The least of `count` replays, after one that does not count; of more where those take less than `busy_us` together, since a chip that was
  /// idle needs some milliseconds to come to its clock.
  double least_us(int count, double busy_us = 0) const;

 private:
  const Gpu& gpu_;
  cuda::Graph graph_;
  cuda::GraphExec exec_;
  cuda::Event begin_, end_;
};

}  // namespace moetail::bench
