// SPDX-License-Identifier: Apache-2.0
// Our declarations of the driver's interface against cuda.h: sizes, offsets, numbers and signatures. Compares at compile time where
// there is a toolkit, so that a mistake is an error of the build; the cases say what was compared.
#include <gtest/gtest.h>

#include "engine/cuda/driver_abi.hpp"

#ifdef MOETAIL_HAS_CUDA_H
#include <cuda.h>

#include <cstddef>
#include <type_traits>

namespace moetail::cuda::abi {
namespace {

#define SAME_SIZE(ours, theirs) \
  static_assert(sizeof(ours) == sizeof(theirs) && alignof(ours) == alignof(theirs))
#define SAME_OFFSET(ours, our_field, theirs, their_field)                     \
  static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field) && \
                sizeof(ours::our_field) == sizeof(theirs::their_field))
#define SAME_NUMBER(ours, theirs) \
  static_assert(static_cast<long long>(ours) == static_cast<long long>(theirs))

SAME_SIZE(Device, CUdevice);
SAME_SIZE(DevicePtr, CUdeviceptr);
SAME_SIZE(Uuid, CUuuid);
static_assert(std::is_same_v<Context, CUcontext> && std::is_same_v<Module, CUmodule> &&
              std::is_same_v<Function, CUfunction> && std::is_same_v<Stream, CUstream> &&
              std::is_same_v<Event, CUevent> && std::is_same_v<Graph, CUgraph> &&
              std::is_same_v<GraphNode, CUgraphNode> && std::is_same_v<GraphExec, CUgraphExec> &&
              std::is_same_v<HostFunction, CUhostFn>);

SAME_SIZE(LaunchAttributeValue, CUlaunchAttributeValue);
SAME_OFFSET(LaunchAttributeValue, cooperative, CUlaunchAttributeValue, cooperative);
SAME_OFFSET(LaunchAttributeValue, programmatic_stream_serialization, CUlaunchAttributeValue,
            programmaticStreamSerializationAllowed);
static_assert(offsetof(LaunchAttributeValue, cluster) == offsetof(CUlaunchAttributeValue, clusterDim) &&
              offsetof(ClusterDimension, x) == 0 && offsetof(ClusterDimension, y) == 4 &&
              offsetof(ClusterDimension, z) == 8 &&
              sizeof(CUlaunchAttributeValue::clusterDim) == sizeof(ClusterDimension));
SAME_SIZE(LaunchAttribute, CUlaunchAttribute);
SAME_OFFSET(LaunchAttribute, id, CUlaunchAttribute, id);
SAME_OFFSET(LaunchAttribute, value, CUlaunchAttribute, value);
SAME_SIZE(LaunchConfig, CUlaunchConfig);
SAME_OFFSET(LaunchConfig, grid_x, CUlaunchConfig, gridDimX);
SAME_OFFSET(LaunchConfig, grid_y, CUlaunchConfig, gridDimY);
SAME_OFFSET(LaunchConfig, grid_z, CUlaunchConfig, gridDimZ);
SAME_OFFSET(LaunchConfig, block_x, CUlaunchConfig, blockDimX);
SAME_OFFSET(LaunchConfig, block_y, CUlaunchConfig, blockDimY);
SAME_OFFSET(LaunchConfig, block_z, CUlaunchConfig, blockDimZ);
SAME_OFFSET(LaunchConfig, shared_bytes, CUlaunchConfig, sharedMemBytes);
SAME_OFFSET(LaunchConfig, stream, CUlaunchConfig, hStream);
SAME_OFFSET(LaunchConfig, attributes, CUlaunchConfig, attrs);
SAME_OFFSET(LaunchConfig, num_attributes, CUlaunchConfig, numAttrs);

SAME_SIZE(Result, CUresult);
SAME_NUMBER(Result::success, CUDA_SUCCESS);
SAME_NUMBER(Result::invalid_value, CUDA_ERROR_INVALID_VALUE);
SAME_NUMBER(Result::out_of_memory, CUDA_ERROR_OUT_OF_MEMORY);
SAME_NUMBER(Result::not_initialized, CUDA_ERROR_NOT_INITIALIZED);
SAME_NUMBER(Result::deinitialized, CUDA_ERROR_DEINITIALIZED);
SAME_NUMBER(Result::no_device, CUDA_ERROR_NO_DEVICE);
SAME_NUMBER(Result::invalid_device, CUDA_ERROR_INVALID_DEVICE);
SAME_NUMBER(Result::invalid_image, CUDA_ERROR_INVALID_IMAGE);
SAME_NUMBER(Result::invalid_context, CUDA_ERROR_INVALID_CONTEXT);
SAME_NUMBER(Result::no_binary_for_gpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME_NUMBER(Result::ecc_uncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE);
SAME_NUMBER(Result::invalid_ptx, CUDA_ERROR_INVALID_PTX);
SAME_NUMBER(Result::unsupported_ptx_version, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
SAME_NUMBER(Result::not_found, CUDA_ERROR_NOT_FOUND);
SAME_NUMBER(Result::not_ready, CUDA_ERROR_NOT_READY);
SAME_NUMBER(Result::illegal_address, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME_NUMBER(Result::launch_out_of_resources, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
SAME_NUMBER(Result::launch_timeout, CUDA_ERROR_LAUNCH_TIMEOUT);
SAME_NUMBER(Result::assert_failed, CUDA_ERROR_ASSERT);
SAME_NUMBER(Result::hardware_stack_error, CUDA_ERROR_HARDWARE_STACK_ERROR);
SAME_NUMBER(Result::illegal_instruction, CUDA_ERROR_ILLEGAL_INSTRUCTION);
SAME_NUMBER(Result::misaligned_address, CUDA_ERROR_MISALIGNED_ADDRESS);
SAME_NUMBER(Result::invalid_address_space, CUDA_ERROR_INVALID_ADDRESS_SPACE);
SAME_NUMBER(Result::invalid_pc, CUDA_ERROR_INVALID_PC);
SAME_NUMBER(Result::launch_failed, CUDA_ERROR_LAUNCH_FAILED);
SAME_NUMBER(Result::cooperative_launch_too_large, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
SAME_NUMBER(Result::not_permitted, CUDA_ERROR_NOT_PERMITTED);
SAME_NUMBER(Result::not_supported, CUDA_ERROR_NOT_SUPPORTED);
SAME_NUMBER(Result::system_driver_mismatch, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
SAME_NUMBER(Result::stream_capture_unsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
SAME_NUMBER(Result::stream_capture_invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
SAME_NUMBER(Result::stream_capture_merge, CUDA_ERROR_STREAM_CAPTURE_MERGE);
SAME_NUMBER(Result::stream_capture_unjoined, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
SAME_NUMBER(Result::unknown, CUDA_ERROR_UNKNOWN);

SAME_SIZE(DeviceAttribute, CUdevice_attribute);
SAME_NUMBER(DeviceAttribute::max_threads_per_block, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME_NUMBER(DeviceAttribute::warp_size, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
SAME_NUMBER(DeviceAttribute::multiprocessor_count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME_NUMBER(DeviceAttribute::can_map_host_memory, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
SAME_NUMBER(DeviceAttribute::compute_mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
SAME_NUMBER(DeviceAttribute::l2_cache_bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
SAME_NUMBER(DeviceAttribute::max_threads_per_multiprocessor,
            CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
SAME_NUMBER(DeviceAttribute::compute_capability_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME_NUMBER(DeviceAttribute::compute_capability_minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME_NUMBER(DeviceAttribute::max_shared_bytes_per_multiprocessor,
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
SAME_NUMBER(DeviceAttribute::max_registers_per_multiprocessor,
            CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
SAME_NUMBER(DeviceAttribute::cooperative_launch, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH);
SAME_NUMBER(DeviceAttribute::max_shared_bytes_per_block_optin,
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME_NUMBER(DeviceAttribute::reserved_shared_bytes_per_block,
            CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
SAME_NUMBER(DeviceAttribute::cluster_launch, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH);
SAME_NUMBER(DeviceAttribute::multicast_supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED);

SAME_SIZE(FunctionAttribute, CUfunction_attribute);
SAME_NUMBER(FunctionAttribute::max_threads_per_block, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME_NUMBER(FunctionAttribute::static_shared_bytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
SAME_NUMBER(FunctionAttribute::local_bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
SAME_NUMBER(FunctionAttribute::num_registers, CU_FUNC_ATTRIBUTE_NUM_REGS);
SAME_NUMBER(FunctionAttribute::binary_version, CU_FUNC_ATTRIBUTE_BINARY_VERSION);
SAME_NUMBER(FunctionAttribute::max_dynamic_shared_bytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME_NUMBER(FunctionAttribute::preferred_shared_carveout, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
SAME_NUMBER(FunctionAttribute::non_portable_cluster_size_allowed,
            CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);

SAME_SIZE(PointerAttribute, CUpointer_attribute);
SAME_NUMBER(PointerAttribute::memory_type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);

SAME_SIZE(LaunchAttributeId, CUlaunchAttributeID);
SAME_NUMBER(LaunchAttributeId::ignore, CU_LAUNCH_ATTRIBUTE_IGNORE);
SAME_NUMBER(LaunchAttributeId::cooperative, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
SAME_NUMBER(LaunchAttributeId::cluster_dimension, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
SAME_NUMBER(LaunchAttributeId::programmatic_stream_serialization,
            CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);

SAME_SIZE(CaptureStatus, CUstreamCaptureStatus);
SAME_NUMBER(CaptureStatus::none, CU_STREAM_CAPTURE_STATUS_NONE);
SAME_NUMBER(CaptureStatus::active, CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME_NUMBER(CaptureStatus::invalidated, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
SAME_SIZE(CaptureMode, CUstreamCaptureMode);
SAME_NUMBER(CaptureMode::global, CU_STREAM_CAPTURE_MODE_GLOBAL);
SAME_NUMBER(CaptureMode::thread_local_only, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME_NUMBER(CaptureMode::relaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME_NUMBER(kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
SAME_NUMBER(kEventDefault, CU_EVENT_DEFAULT);
SAME_NUMBER(kEventDisableTiming, CU_EVENT_DISABLE_TIMING);
SAME_NUMBER(kEventWaitDefault, CU_EVENT_WAIT_DEFAULT);
SAME_NUMBER(kHostAllocPortable, CU_MEMHOSTALLOC_PORTABLE);
SAME_NUMBER(kHostAllocDeviceMap, CU_MEMHOSTALLOC_DEVICEMAP);

/// How an argument travels: a pointer, or an integer of so many bytes. Our enums are not theirs, but travel alike.
template <typename T>
constexpr int kind_of() {
  if constexpr (std::is_pointer_v<T>) return -1;
  return static_cast<int>(sizeof(T));
}
template <typename Ours, typename Theirs>
struct Same : std::false_type {};
template <typename R1, typename... A1, typename R2, typename... A2>
struct Same<R1(A1...), R2(A2...)> {
  static constexpr bool compare() {
    if constexpr (sizeof...(A1) == sizeof...(A2))
      return kind_of<R1>() == kind_of<R2>() && ((kind_of<A1>() == kind_of<A2>()) && ...);
    else
      return false;
  }
  static constexpr bool value = compare();
};
// The comparison itself can fail.
static_assert(Same<int(char*, unsigned), CUresult(int*, int)>::value);
static_assert(!Same<int(char*, unsigned), CUresult(int*, std::size_t)>::value);
static_assert(!Same<int(char*), CUresult(int*, int)>::value && !Same<int(int), CUresult(int*)>::value);

#define SAME_SIGNATURE(member, symbol, parameters) \
  static_assert(Same<Result parameters, std::remove_pointer_t<decltype(&::symbol)>>::value, #symbol);
MOETAIL_CUDA_DRIVER_FUNCTIONS(SAME_SIGNATURE)

}  // namespace
}  // namespace moetail::cuda::abi

TEST(CudaAbi, AgreesWithTheToolkit) {
  SUCCEED() << "compared with CUDA " << CUDA_VERSION;
}
#else
TEST(CudaAbi, AgreesWithTheToolkit) {
  GTEST_SKIP() << "no cuda.h where this was built: nothing to compare our declarations with";
}
#endif
