// SPDX-License-Identifier: Apache-2.0
// The CUDA driver's functions of memory, streams, events and graphs.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/emulator/streams.hpp"

using namespace moetail::cuda::abi;
using namespace moetail::emulator;

#define EXPORT __attribute__((visibility("default")))

extern "C" {

EXPORT Result cuMemAlloc_v2(DevicePtr* address, std::size_t bytes) {
  return guarded([&] {
    void* const memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (memory == nullptr) return Result::out_of_memory;
    *address = reinterpret_cast<DevicePtr>(memory);
    machine().memory[reinterpret_cast<std::uintptr_t>(memory)] = {bytes, true};
    return Result::success;
  });
}
EXPORT Result cuMemFree_v2(DevicePtr address) {
  std::unique_lock lock(machine().mutex);
  // As CUDA's, it waits for whatever may use the memory.
  wait_for_all(lock);
  machine().memory.erase(static_cast<std::uintptr_t>(address));
  std::free(reinterpret_cast<void*>(address));
  return Result::success;
}
EXPORT Result cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  *free = *total = std::size_t{4} << 30;
  return Result::success;
}
EXPORT Result cuMemHostAlloc(void** host, std::size_t bytes, unsigned) {
  return done([&] {
    *host = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    std::memset(*host, 0xAB, bytes);  // it comes as it is
    machine().memory[reinterpret_cast<std::uintptr_t>(*host)] = {bytes, false};
  });
}
EXPORT Result cuMemHostGetDevicePointer_v2(DevicePtr* address, void* host, unsigned) {
  *address = reinterpret_cast<DevicePtr>(host);
  return Result::success;
}
EXPORT Result cuPointerGetAttribute(void* value, PointerAttribute, DevicePtr address) {
  return guarded([&] {
    const auto* memory = machine().memory_of(reinterpret_cast<const void*>(address));
    if (memory == nullptr) return Result::invalid_value;
    *static_cast<unsigned*>(value) = memory->is_device ? 2 : 1;  // CU_MEMORYTYPE_DEVICE, _HOST
    return Result::success;
  });
}
EXPORT Result cuMemFreeHost(void* host) {
  const std::lock_guard lock(machine().mutex);
  machine().memory.erase(reinterpret_cast<std::uintptr_t>(host));
  std::free(host);
  return Result::success;
}

EXPORT Result cuMemcpyAsync(DevicePtr to, DevicePtr from, std::size_t bytes, Stream stream) {
  auto* const target = reinterpret_cast<void*>(to);
  const auto* const source = reinterpret_cast<const void*>(from);
  auto operation = std::make_unique<Operation>();
  std::unique_lock lock(machine().mutex);
  if (machine().error != Result::success) return machine().error;
  if (machine().memory_of(source) != nullptr) {
    operation->action = [=] { std::memcpy(target, source, bytes); };
  } else {
    // From pageable memory: it has been read when this returns.
    auto copy = std::make_shared<std::vector<std::byte>>(static_cast<const std::byte*>(source),
                                                         static_cast<const std::byte*>(source) + bytes);
    operation->action = [=] { std::memcpy(target, copy->data(), bytes); };
  }
  const bool waits =
      machine().memory_of(target) == nullptr && (stream == nullptr || stream->capture == nullptr);
  enqueue(stream, std::move(operation));
  return waits ? wait_for_stream(lock, stream) : Result::success;
}
EXPORT Result cuMemsetD32Async(DevicePtr to, unsigned word, std::size_t words, Stream stream) {
  auto operation = std::make_unique<Operation>();
  operation->action = [=] { std::fill_n(reinterpret_cast<unsigned*>(to), words, word); };
  return done([&] { enqueue(stream, std::move(operation)); });
}

EXPORT Result cuStreamCreateWithPriority(Stream* stream, unsigned, int) {
  return done([&] {
    *stream = new CUstream_st;
    machine().streams.insert(*stream);
  });
}
EXPORT Result cuStreamDestroy_v2(Stream stream) {
  const std::lock_guard lock(machine().mutex);
  stream->destroyed = true;  // once it is empty
  machine().changed.notify_all();
  return Result::success;
}
EXPORT Result cuStreamSynchronize(Stream stream) {
  std::unique_lock lock(machine().mutex);
  return wait_for_stream(lock, stream);
}
EXPORT Result cuStreamQuery(Stream stream) {
  return guarded([&] { return stream->queue.empty() ? Result::success : Result::not_ready; });
}
EXPORT Result cuStreamWaitEvent(Stream stream, Event event, unsigned) {
  return done([&] {
    if (event->capture != nullptr) {  // the stream joins the capture
      stream->capture = event->capture;
      return;
    }
    if (event->mark == nullptr) return;
    auto operation = std::make_unique<Operation>();
    operation->awaits = event->mark;
    enqueue(stream, std::move(operation));
  });
}
EXPORT Result cuStreamIsCapturing(Stream stream, CaptureStatus* status) {
  return done([&] {
    *status = stream != nullptr && stream->capture != nullptr ? CaptureStatus::active : CaptureStatus::none;
  });
}
EXPORT Result cuStreamBeginCapture_v2(Stream stream, CaptureMode) {
  return done([&] { stream->capture = new CUgraph_st; });
}
EXPORT Result cuStreamEndCapture(Stream stream, Graph* graph) {
  return done([&] {
    *graph = stream->capture;
    for (CUstream_st* other : machine().streams)
      if (other->capture == *graph) other->capture = nullptr;
  });
}

EXPORT Result cuEventCreate(Event* event, unsigned) {
  *event = new CUevent_st;
  return Result::success;
}
EXPORT Result cuEventDestroy_v2(Event event) {
  delete event;
  return Result::success;
}
EXPORT Result cuEventRecord(Event event, Stream stream) {
  return done([&] {
    event->capture = stream != nullptr ? stream->capture : nullptr;
    if (event->capture != nullptr) return;
    auto operation = std::make_unique<Operation>();
    operation->records = event->mark = std::make_shared<Mark>();
    enqueue(stream, std::move(operation));
  });
}
EXPORT Result cuEventQuery(Event event) {
  return guarded(
      [&] { return event->mark == nullptr || event->mark->reached ? Result::success : Result::not_ready; });
}
EXPORT Result cuEventSynchronize(Event event) {
  std::unique_lock lock(machine().mutex);
  return machine().wait_for(lock, [mark = event->mark] { return mark == nullptr || mark->reached; });
}
EXPORT Result cuEventElapsedTime(float* ms, Event begin, Event end) {
  return guarded([&] {
    if (begin->mark == nullptr || end->mark == nullptr || !begin->mark->reached || !end->mark->reached)
      return Result::not_ready;
    *ms = std::chrono::duration<float, std::milli>(end->mark->time - begin->mark->time).count();
    return Result::success;
  });
}

EXPORT Result cuGraphGetNodes(Graph graph, GraphNode*, std::size_t* count) {
  *count = graph->operations.size();
  return Result::success;
}
EXPORT Result cuGraphDestroy(Graph graph) {
  delete graph;
  return Result::success;
}
EXPORT Result cuGraphInstantiateWithFlags(GraphExec* exec, Graph graph, unsigned long long) {
  *exec = new CUgraphExec_st{graph->operations};
  return Result::success;
}
EXPORT Result cuGraphUpload(GraphExec, Stream) {
  return Result::success;
}
EXPORT Result cuGraphLaunch(GraphExec exec, Stream stream) {
  return done([&] {
    for (const auto& operation : exec->operations) enqueue(stream, copy_of(*operation));
  });
}
EXPORT Result cuGraphExecDestroy(GraphExec exec) {
  delete exec;
  return Result::success;
}

}  // extern "C"
