// SPDX-License-Identifier: Apache-2.0
// The part of the CUDA driver's binary interface that moetail uses, declared by itself, so that it builds where no
// toolkit is. tests/cuda_abi_test.cpp compares every size, offset, number and signature with cuda.h where there is one.
#pragma once

#include <cstddef>
#include <cstdint>

// The driver's own tags: a handle here is the handle of a program that includes cuda.h or cuda_runtime.h.
struct CUctx_st;
struct CUmod_st;
struct CUfunc_st;
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphNode_st;
struct CUgraphExec_st;

namespace moetail::cuda::abi {

using Device = int;
using DevicePtr = unsigned long long;  // as the driver spells it; the same width as a pointer
using Context = CUctx_st*;
using Module = CUmod_st*;
using Function = CUfunc_st*;
using Stream = CUstream_st*;
using Event = CUevent_st*;
using Graph = CUgraph_st*;
using GraphNode = CUgraphNode_st*;
using GraphExec = CUgraphExec_st*;
static_assert(sizeof(DevicePtr) == sizeof(void*));

enum class Result : int {
  success = 0,
  invalid_value = 1,
  out_of_memory = 2,
  not_initialized = 3,
  deinitialized = 4,
  no_device = 100,
  invalid_device = 101,
  invalid_image = 200,
  invalid_context = 201,
  no_binary_for_gpu = 209,
  ecc_uncorrectable = 214,
  invalid_ptx = 218,
  unsupported_ptx_version = 222,
  not_found = 500,
  not_ready = 600,
  illegal_address = 700,
  launch_out_of_resources = 701,
  launch_timeout = 702,
  assert_failed = 710,
  hardware_stack_error = 714,
  illegal_instruction = 715,
  misaligned_address = 716,
  invalid_address_space = 717,
  invalid_pc = 718,
  launch_failed = 719,
  cooperative_launch_too_large = 720,
  not_permitted = 800,
  not_supported = 801,
  system_driver_mismatch = 803,
  stream_capture_unsupported = 900,
  stream_capture_invalidated = 901,
  stream_capture_merge = 902,
  stream_capture_unjoined = 904,
  unknown = 999,
};

enum class DeviceAttribute : int {
  max_threads_per_block = 1,
  warp_size = 10,
  multiprocessor_count = 16,
  can_map_host_memory = 19,
  compute_mode = 20,
  l2_cache_bytes = 38,
  max_threads_per_multiprocessor = 39,
  compute_capability_major = 75,
  compute_capability_minor = 76,
  max_shared_bytes_per_multiprocessor = 81,
  max_registers_per_multiprocessor = 82,
  cooperative_launch = 95,
  max_shared_bytes_per_block_optin = 97,
  reserved_shared_bytes_per_block = 111,
  cluster_launch = 120,
  multicast_supported = 132,
};

enum class FunctionAttribute : int {
  max_threads_per_block = 0,
  static_shared_bytes = 1,
  local_bytes = 3,  ///< a thread: stack and spills
  num_registers = 4,
  binary_version = 6,
  max_dynamic_shared_bytes = 8,
  preferred_shared_carveout = 9,  ///< percent
  non_portable_cluster_size_allowed = 14,
};

enum class LaunchAttributeId : int {
  ignore = 0,
  cooperative = 2,
  cluster_dimension = 4,
  programmatic_stream_serialization = 6,
};

enum class PointerAttribute : int { memory_type = 2 };

enum class CaptureStatus : int { none = 0, active = 1, invalidated = 2 };
enum class CaptureMode : int { global = 0, thread_local_only = 1, relaxed = 2 };

inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDefault = 0;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kEventWaitDefault = 0;
inline constexpr unsigned kHostAllocPortable = 1;
inline constexpr unsigned kHostAllocDeviceMap = 2;
inline constexpr unsigned long long kGraphInstantiateDefault = 0;

struct ClusterDimension {
  unsigned x, y, z;
};

// Aligned as the driver's, which has pointers among its members.
union alignas(8) LaunchAttributeValue {
  char pad[64];
  int cooperative;
  ClusterDimension cluster;
  int programmatic_stream_serialization;
};

struct LaunchAttribute {
  LaunchAttributeId id;
  char pad[4];
  LaunchAttributeValue value;
};
static_assert(sizeof(LaunchAttributeValue) == 64 && sizeof(LaunchAttribute) == 72 &&
              offsetof(LaunchAttribute, value) == 8);

struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;  ///< dynamic
  Stream stream;
  LaunchAttribute* attributes;
  unsigned num_attributes;
};
static_assert(sizeof(LaunchConfig) == 56 && offsetof(LaunchConfig, stream) == 32 &&
              offsetof(LaunchConfig, attributes) == 40 && offsetof(LaunchConfig, num_attributes) == 48);

struct Uuid {
  char bytes[16];
};
static_assert(sizeof(Uuid) == 16);

using HostFunction = void (*)(void*);

}  // namespace moetail::cuda::abi

// Every function of the driver that moetail calls: member of Driver, symbol in the library, parameters. The symbol is the
// versioned one, as the library exports it.
#define MOETAIL_CUDA_DRIVER_FUNCTIONS(X)                                                                \
  X(get_error_name, cuGetErrorName, (Result, const char**))                                             \
  X(get_error_string, cuGetErrorString, (Result, const char**))                                         \
  X(init, cuInit, (unsigned))                                                                           \
  X(driver_get_version, cuDriverGetVersion, (int*))                                                     \
  X(device_get_count, cuDeviceGetCount, (int*))                                                         \
  X(device_get, cuDeviceGet, (Device*, int))                                                            \
  X(device_get_name, cuDeviceGetName, (char*, int, Device))                                             \
  X(device_get_uuid, cuDeviceGetUuid_v2, (Uuid*, Device))                                               \
  X(device_get_attribute, cuDeviceGetAttribute, (int*, DeviceAttribute, Device))                        \
  X(device_total_mem, cuDeviceTotalMem_v2, (std::size_t*, Device))                                      \
  X(primary_ctx_retain, cuDevicePrimaryCtxRetain, (Context*, Device))                                   \
  X(primary_ctx_release, cuDevicePrimaryCtxRelease_v2, (Device))                                        \
  X(ctx_get_current, cuCtxGetCurrent, (Context*))                                                       \
  X(ctx_push_current, cuCtxPushCurrent_v2, (Context))                                                   \
  X(ctx_pop_current, cuCtxPopCurrent_v2, (Context*))                                                    \
  X(ctx_synchronize, cuCtxSynchronize, ())                                                              \
  X(module_load_data, cuModuleLoadData, (Module*, const void*))                                         \
  X(module_unload, cuModuleUnload, (Module))                                                            \
  X(module_get_function, cuModuleGetFunction, (Function*, Module, const char*))                         \
  X(func_get_attribute, cuFuncGetAttribute, (int*, FunctionAttribute, Function))                        \
  X(func_set_attribute, cuFuncSetAttribute, (Function, FunctionAttribute, int))                         \
  X(occupancy_max_active_blocks, cuOccupancyMaxActiveBlocksPerMultiprocessor,                           \
    (int*, Function, int, std::size_t))                                                                 \
  X(occupancy_max_active_clusters, cuOccupancyMaxActiveClusters, (int*, Function, const LaunchConfig*)) \
  X(launch_kernel_ex, cuLaunchKernelEx, (const LaunchConfig*, Function, void**, void**))                \
  X(launch_host_func, cuLaunchHostFunc, (Stream, HostFunction, void*))                                  \
  X(mem_alloc, cuMemAlloc_v2, (DevicePtr*, std::size_t))                                                \
  X(mem_free, cuMemFree_v2, (DevicePtr))                                                                \
  X(mem_get_info, cuMemGetInfo_v2, (std::size_t*, std::size_t*))                                        \
  X(mem_host_alloc, cuMemHostAlloc, (void**, std::size_t, unsigned))                                    \
  X(mem_host_get_device_pointer, cuMemHostGetDevicePointer_v2, (DevicePtr*, void*, unsigned))           \
  X(pointer_get_attribute, cuPointerGetAttribute, (void*, PointerAttribute, DevicePtr))                 \
  X(mem_free_host, cuMemFreeHost, (void*))                                                              \
  X(memcpy_async, cuMemcpyAsync, (DevicePtr, DevicePtr, std::size_t, Stream))                           \
  X(memset_d32_async, cuMemsetD32Async, (DevicePtr, unsigned, std::size_t, Stream))                     \
  X(stream_create, cuStreamCreateWithPriority, (Stream*, unsigned, int))                                \
  X(stream_destroy, cuStreamDestroy_v2, (Stream))                                                       \
  X(stream_synchronize, cuStreamSynchronize, (Stream))                                                  \
  X(stream_query, cuStreamQuery, (Stream))                                                              \
  X(stream_wait_event, cuStreamWaitEvent, (Stream, Event, unsigned))                                    \
  X(stream_is_capturing, cuStreamIsCapturing, (Stream, CaptureStatus*))                                 \
  X(stream_begin_capture, cuStreamBeginCapture_v2, (Stream, CaptureMode))                               \
  X(stream_end_capture, cuStreamEndCapture, (Stream, Graph*))                                           \
  X(event_create, cuEventCreate, (Event*, unsigned))                                                    \
  X(event_destroy, cuEventDestroy_v2, (Event))                                                          \
  X(event_record, cuEventRecord, (Event, Stream))                                                       \
  X(event_query, cuEventQuery, (Event))                                                                 \
  X(event_synchronize, cuEventSynchronize, (Event))                                                     \
  X(event_elapsed_time, cuEventElapsedTime, (float*, Event, Event))                                     \
  X(graph_get_nodes, cuGraphGetNodes, (Graph, GraphNode*, std::size_t*))                                \
  X(graph_destroy, cuGraphDestroy, (Graph))                                                             \
  X(graph_instantiate, cuGraphInstantiateWithFlags, (GraphExec*, Graph, unsigned long long))            \
  X(graph_upload, cuGraphUpload, (GraphExec, Stream))                                                   \
  X(graph_launch, cuGraphLaunch, (GraphExec, Stream))                                                   \
  X(graph_exec_destroy, cuGraphExecDestroy, (GraphExec))
