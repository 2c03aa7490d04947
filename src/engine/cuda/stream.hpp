// SPDX-License-Identifier: Apache-2.0
// Streams, events and graphs that own themselves.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/cuda/context.hpp"
#include "engine/cuda/memory.hpp"

namespace moetail::cuda {

/// A point in a stream's work.
class Event {
 public:
  enum class Timing { off, on };
  explicit Event(ContextRef context, Timing timing = Timing::off);
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  abi::Event handle() const { return handle_; }
  void synchronize() const;
  bool is_done() const;

 private:
  ContextRef context_;
  abi::Event handle_ = nullptr;
};

/// Microseconds from `begin` to `end`, both recorded and complete and made with Timing::on.
double elapsed_us(const Event& begin, const Event& end, const Context& context);

/// A captured sequence of launches.
class Graph {
 public:
  Graph(ContextRef context, abi::Graph handle);  ///< owns `handle`
  ~Graph();
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;

  abi::Graph handle() const { return handle_; }
  const ContextRef& context() const { return context_; }
  std::size_t num_nodes() const;

 private:
  ContextRef context_;
  abi::Graph handle_ = nullptr;
};

/// What a stream launches at once. Must outlive its launches.
class Stream;
class GraphExec {
 public:
  explicit GraphExec(const Graph& graph);
  ~GraphExec();
  GraphExec(GraphExec&& other) noexcept;
  GraphExec& operator=(GraphExec&& other) noexcept;

  abi::GraphExec handle() const { return handle_; }
  /// Brings the graph to the device, so that the first launch is not slower than the others.
  void upload(const Stream& stream) const;
  void launch(const Stream& stream) const;

 private:
  ContextRef context_;
  abi::GraphExec handle_ = nullptr;
};

/// Work in order. Never the legacy default stream, with which it does not synchronize either.
class Stream {
 public:
  /// Priority 0 is the lowest; negative numbers come first, as far as the device has them.
  explicit Stream(ContextRef context, int priority = 0);
  /// A caller's own stream (a cudaStream_t is a handle too): used, never destroyed. 0, the legacy default stream, cannot be
  /// captured.
  static Stream borrow(ContextRef context, abi::Stream handle);
  ~Stream();
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;

  abi::Stream handle() const { return handle_; }
  const ContextRef& context() const { return context_; }

  /// Throws Code::fault when a kernel of the context has crashed: the context is lost then, and so is the process's CUDA.
  void synchronize() const;
  bool is_done() const;
  void record(const Event& event) const;
  void wait(const Event& event) const;
  /// Everything enqueued on `other` until now comes before everything enqueued here from now on. Under capture this draws
  /// `other` into the capture, or back out of it.
  void join(const Stream& other) const;

  /// Fills `words` 32-bit words.
  void fill(abi::DevicePtr to, std::uint32_t word, std::size_t words) const;
  /// Copies between any two of device memory, mapped and ordinary host memory. The host side must live, and a source must not
  /// change, until the copy has run.
  void copy(void* to, const void* from, std::size_t bytes) const;
  void copy(abi::DevicePtr to, const void* from, std::size_t bytes) const;
  void copy(void* to, abi::DevicePtr from, std::size_t bytes) const;
  /// Calls `function(data)` on a thread of the driver. It must not call CUDA.
  void call(abi::HostFunction function, void* data) const;

  bool is_capturing() const;
  /// What is enqueued on this stream, and on those that join it, becomes a graph instead of running. Thread-local: other
  /// threads may go on allocating.
  void begin_capture() const;
  Graph end_capture() const;

 private:
  Stream(ContextRef context, abi::Stream handle, bool owned);

  ContextRef context_;
  abi::Stream handle_ = nullptr;
  bool owned_ = false;
};

}  // namespace moetail::cuda
