// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_cuda/fake_cuda.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "tests/h200_attributes.hpp"

namespace moetail::cuda::abi {
namespace {

using ::moetail::testing::FakeLaunch;
using ::moetail::testing::FakeState;

FakeState& state() {
  static FakeState the_state;
  return the_state;
}

/// One call at a time, whatever it calls: kernels are loaded from several threads. Recursive, since host functions run inside one.
std::recursive_mutex& call_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

/// Counts the call and does it, unless it shall fail.
template <typename Body>
Result call(const char* symbol, const Body& body) {
  const std::lock_guard lock(call_mutex());
  ++state().calls[symbol];
  const auto failure = state().failures.find(symbol);
  if (failure != state().failures.end()) return failure->second;
  body();
  return Result::success;
}

/// A handle that is a small allocation, so that a leak checker sees what is not destroyed.
template <typename Handle>
Handle make(const char* kind) {
  ++state().live[kind];
  return static_cast<Handle>(std::malloc(1));
}
template <typename Handle>
void destroy(const char* kind, Handle handle) {
  --state().live[kind];
  std::free(handle);
}

thread_local Context current = nullptr;
char primary;  // its address is the primary context

int attribute_of(DeviceAttribute which) {
  const auto& device = state().device;
  switch (which) {
    case DeviceAttribute::compute_capability_major: return device.major;
    case DeviceAttribute::compute_capability_minor: return device.minor;
    case DeviceAttribute::cluster_launch: return device.has_clusters ? 1 : 0;
    case DeviceAttribute::can_map_host_memory: return device.maps_host_memory ? 1 : 0;
    case DeviceAttribute::compute_mode: return device.compute_mode;
    default: return testing::h200_attribute(which);
  }
}

}  // namespace

#define EXPORT __attribute__((visibility("default")))

extern "C" {

EXPORT FakeState* fake_cuda_state() {
  return &state();
}

// The two that name errors must work whatever else fails.
EXPORT Result cuGetErrorName(Result error, const char** name) {
  *name = error == Result::out_of_memory   ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == Result::no_device     ? "CUDA_ERROR_NO_DEVICE"
          : error == Result::launch_failed ? "CUDA_ERROR_LAUNCH_FAILED"
                                           : nullptr;
  return *name != nullptr ? Result::success : Result::invalid_value;
}
EXPORT Result cuGetErrorString(Result error, const char** text) {
  *text = error == Result::out_of_memory ? "out of memory" : "a fake error";
  return Result::success;
}

EXPORT Result cuInit(unsigned) {
  return call(__func__, [&] {});
}

EXPORT Result cuDriverGetVersion(int* version) {
  return call(__func__, [&] { *version = state().device.version; });
}

EXPORT Result cuDeviceGetCount(int* count) {
  return call(__func__, [&] { *count = state().device.num_devices; });
}

EXPORT Result cuDeviceGet(Device* device, int ordinal) {
  return call(__func__, [&] { *device = ordinal; });
}

EXPORT Result cuDeviceGetName(char* name, int size, Device) {
  return call(__func__, [&] { std::snprintf(name, static_cast<std::size_t>(size), "Fake GPU"); });
}

EXPORT Result cuDeviceGetUuid_v2(Uuid* uuid, Device) {
  return call(__func__, [&] {
    for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<char>(0x10 * i + i);
  });
}

EXPORT Result cuDeviceGetAttribute(int* value, DeviceAttribute which, Device) {
  return call(__func__, [&] { *value = attribute_of(which); });
}

EXPORT Result cuDeviceTotalMem_v2(std::size_t* bytes, Device) {
  return call(__func__, [&] { *bytes = state().device.memory_bytes; });
}

EXPORT Result cuDevicePrimaryCtxRetain(Context* context, Device) {
  return call(__func__, [&] {
    ++state().live["primary context"];
    *context = reinterpret_cast<Context>(&primary);
  });
}

EXPORT Result cuDevicePrimaryCtxRelease_v2(Device) {
  return call(__func__, [&] { --state().live["primary context"]; });
}

EXPORT Result cuCtxGetCurrent(Context* context) {
  return call(__func__, [&] { *context = current; });
}

EXPORT Result cuCtxPushCurrent_v2(Context context) {
  return call(__func__, [&] {
    ++state().live["pushed context"];
    current = context;
  });
}

EXPORT Result cuCtxPopCurrent_v2(Context* context) {
  return call(__func__, [&] {
    --state().live["pushed context"];
    *context = current;
    current = nullptr;
  });
}

EXPORT Result cuCtxSynchronize() {
  return call(__func__, [&] {});
}

EXPORT Result cuModuleLoadData(Module* module, const void*) {
  return call(__func__, [&] { *module = make<Module>("module"); });
}

EXPORT Result cuModuleUnload(Module module) {
  return call(__func__, [&] { destroy("module", module); });
}

EXPORT Result cuModuleGetFunction(Function* function, Module module, const char*) {
  return call(__func__, [&] { *function = reinterpret_cast<Function>(module); });
}

EXPORT Result cuFuncGetAttribute(int* value, FunctionAttribute which, Function) {
  return call(__func__, [&] { *value = state().function_attributes[static_cast<int>(which)]; });
}

EXPORT Result cuFuncSetAttribute(Function, FunctionAttribute which, int value) {
  return call(__func__, [&] { state().function_attributes[static_cast<int>(which)] = value; });
}

EXPORT Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function, int, std::size_t) {
  return call(__func__, [&] { *blocks = 2; });
}

EXPORT Result cuOccupancyMaxActiveClusters(int* clusters, Function, const LaunchConfig*) {
  return call(__func__, [&] { *clusters = state().device.resident_clusters; });
}

EXPORT Result cuLaunchKernelEx(const LaunchConfig* config, Function, void** parameters, void**) {
  return call(__func__, [&] {
    FakeLaunch launch;
    launch.config = *config;
    launch.attributes.assign(config->attributes, config->attributes + config->num_attributes);
    launch.parameters.assign(parameters, parameters + state().num_parameters);
    if (parameters[0] != nullptr)  // a kernel without parameters
      std::memcpy(&launch.first_parameter, parameters[0], sizeof launch.first_parameter);
    state().launches.push_back(launch);
  });
}

EXPORT Result cuLaunchHostFunc(Stream, HostFunction function, void* data) {
  return call(__func__, [&] { function(data); });
}

EXPORT Result cuMemAlloc_v2(DevicePtr* address, std::size_t bytes) {
  if (bytes > state().device.memory_bytes) return Result::out_of_memory;
  return call(__func__, [&] {
    ++state().live["device memory"];
    *address = reinterpret_cast<DevicePtr>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
    state().allocations[*address] = bytes;
  });
}

EXPORT Result cuMemFree_v2(DevicePtr address) {
  return call(__func__, [&] {
    --state().live["device memory"];
    state().allocations.erase(address);
    std::free(reinterpret_cast<void*>(address));
  });
}

EXPORT Result cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return call(__func__, [&] { *free = *total = state().device.memory_bytes; });
}

EXPORT Result cuMemHostAlloc(void** host, std::size_t bytes, unsigned) {
  return call(__func__, [&] {
    ++state().live["host memory"];
    *host = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    std::memset(*host, 0xAB, bytes);  // pinned memory comes as it is
  });
}

EXPORT Result cuMemHostGetDevicePointer_v2(DevicePtr* address, void* host, unsigned) {
  return call(__func__, [&] { *address = reinterpret_cast<DevicePtr>(host); });
}

EXPORT Result cuPointerGetAttribute(void* value, PointerAttribute, DevicePtr address) {
  ++state().calls[__func__];
  for (const auto& [begin, bytes] : state().allocations)
    if (address >= begin && address < begin + bytes) {
      *static_cast<unsigned*>(value) = 2;  // CU_MEMORYTYPE_DEVICE
      return Result::success;
    }
  return Result::invalid_value;
}

EXPORT Result cuMemFreeHost(void* host) {
  return call(__func__, [&] {
    --state().live["host memory"];
    std::free(host);
  });
}

EXPORT Result cuMemcpyAsync(DevicePtr to, DevicePtr from, std::size_t bytes, Stream) {
  return call(__func__,
              [&] { std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes); });
}

EXPORT Result cuMemsetD32Async(DevicePtr to, unsigned word, std::size_t words, Stream) {
  return call(__func__, [&] {
    for (std::size_t i = 0; i < words; ++i) reinterpret_cast<unsigned*>(to)[i] = word;
  });
}

EXPORT Result cuStreamCreateWithPriority(Stream* stream, unsigned, int) {
  return call(__func__, [&] { *stream = make<Stream>("stream"); });
}

EXPORT Result cuStreamDestroy_v2(Stream stream) {
  return call(__func__, [&] { destroy("stream", stream); });
}

EXPORT Result cuStreamSynchronize(Stream) {
  return call(__func__, [&] {});
}

EXPORT Result cuStreamQuery(Stream) {
  return call(__func__, [&] {});
}

EXPORT Result cuStreamWaitEvent(Stream, Event, unsigned) {
  return call(__func__, [&] {});
}

EXPORT Result cuStreamIsCapturing(Stream, CaptureStatus* status) {
  return call(__func__, [&] { *status = state().capturing ? CaptureStatus::active : CaptureStatus::none; });
}

EXPORT Result cuStreamBeginCapture_v2(Stream, CaptureMode) {
  return call(__func__, [&] { state().capturing = true; });
}

EXPORT Result cuStreamEndCapture(Stream, Graph* graph) {
  return call(__func__, [&] {
    state().capturing = false;
    *graph = make<Graph>("graph");
  });
}

EXPORT Result cuEventCreate(Event* event, unsigned) {
  return call(__func__, [&] { *event = make<Event>("event"); });
}

EXPORT Result cuEventDestroy_v2(Event event) {
  return call(__func__, [&] { destroy("event", event); });
}

EXPORT Result cuEventRecord(Event, Stream) {
  return call(__func__, [&] {});
}

EXPORT Result cuEventQuery(Event) {
  return call(__func__, [&] {});
}

EXPORT Result cuEventSynchronize(Event) {
  return call(__func__, [&] {});
}

EXPORT Result cuEventElapsedTime(float* ms, Event, Event) {
  return call(__func__, [&] { *ms = 1.5f; });
}

EXPORT Result cuGraphGetNodes(Graph, GraphNode*, std::size_t* count) {
  return call(__func__, [&] { *count = 3; });
}

EXPORT Result cuGraphDestroy(Graph graph) {
  return call(__func__, [&] { destroy("graph", graph); });
}

EXPORT Result cuGraphInstantiateWithFlags(GraphExec* exec, Graph, unsigned long long) {
  return call(__func__, [&] { *exec = make<GraphExec>("graph exec"); });
}

EXPORT Result cuGraphUpload(GraphExec, Stream) {
  return call(__func__, [&] {});
}

EXPORT Result cuGraphLaunch(GraphExec, Stream) {
  return call(__func__, [&] {});
}

EXPORT Result cuGraphExecDestroy(GraphExec exec) {
  return call(__func__, [&] { destroy("graph exec", exec); });
}

}  // extern "C"

}  // namespace moetail::cuda::abi
