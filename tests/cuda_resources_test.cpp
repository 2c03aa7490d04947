// SPDX-License-Identifier: Apache-2.0
// What owns something of the driver's: it comes back once, whatever is moved, thrown or destroyed; errors say which call, with what,
// and what the driver calls it; launches carry the attributes they were asked for.
#include <gmock/gmock.h>

#include <array>
#include <cstring>
#include <optional>
#include <type_traits>

#include "engine/cuda/kernel.hpp"
#include "engine/cuda/memory.hpp"
#include "engine/cuda/stream.hpp"
#include "tests/cuda_testing.hpp"
#include "tests/expect_error.hpp"

namespace moetail::testing {
namespace {

using cuda::abi::LaunchAttributeId;
using cuda::abi::Result;

class CudaResources : public FakeCudaTest {
 protected:
  ~CudaResources() override { expect_nothing_lives(); }
};

constexpr std::array<std::byte, 4> kImage = {};

const cuda::abi::LaunchAttribute* attribute(const FakeLaunch& launch, LaunchAttributeId id) {
  for (const auto& attribute : launch.attributes)
    if (attribute.id == id) return &attribute;
  return nullptr;
}

TEST_F(CudaResources, AllComeBack) {
  const auto context = retain();
  for (int i = 0; i < 100; ++i) {
    const cuda::Stream stream(context);
    const cuda::Event event(context);
    const cuda::DeviceMemory memory(context, 1000);
    const cuda::MappedHostMemory mapped(context, 1000);
    const cuda::Kernel kernel(context, kImage, "kernel");
    stream.begin_capture();
    const cuda::Graph graph = stream.end_capture();
    const cuda::GraphExec exec(graph);
    EXPECT_EQ(fake.live["stream"], 1);
    EXPECT_EQ(fake.live["graph exec"], 1);
    EXPECT_EQ(fake.live["module"], 1);
  }
}

TEST_F(CudaResources, TheContextIsReleasedLast) {
  std::optional<cuda::DeviceMemory> memory;
  memory.emplace(retain(), 64);
  EXPECT_EQ(fake.live["primary context"], 1);
  memory.reset();
  EXPECT_EQ(fake.live["primary context"], 0);
}

template <typename T>
void expect_moves(T first, T second) {
  T moved(std::move(first));
  moved = std::move(second);
  T& self = moved;
  moved = std::move(self);
}

TEST_F(CudaResources, AreMoveOnlyAndMove) {
  static_assert(!std::is_copy_constructible_v<cuda::Stream> && !std::is_copy_assignable_v<cuda::Event> &&
                !std::is_copy_constructible_v<cuda::Graph> &&
                !std::is_copy_constructible_v<cuda::GraphExec> &&
                !std::is_copy_constructible_v<cuda::DeviceMemory> &&
                !std::is_copy_constructible_v<cuda::MappedHostMemory>);
  static_assert(std::is_nothrow_move_constructible_v<cuda::Stream> &&
                std::is_nothrow_destructible_v<cuda::Kernel>);
  const auto context = retain();
  expect_moves(cuda::Stream(context), cuda::Stream(context));
  expect_moves(cuda::Event(context), cuda::Event(context));
  expect_moves(cuda::DeviceMemory(context, 8), cuda::DeviceMemory(context, 8));
  expect_moves(cuda::MappedHostMemory(context, 8), cuda::MappedHostMemory(context, 8));
}

TEST_F(CudaResources, DestructorsKeepQuietWhenTheContextIsLost) {
  const auto context = retain();
  std::optional<cuda::Stream> stream(context);
  std::optional<cuda::DeviceMemory> memory;
  memory.emplace(context, 64);
  const auto stream_handle = stream->handle();
  const auto address = memory->address();
  fake.failures["cuCtxGetCurrent"] = Result::deinitialized;
  stream.reset();
  memory.reset();
  EXPECT_EQ(fake.live["stream"], 1) << "nothing can be given back to a driver that is gone";
  fake.failures.clear();
  context->driver().stream_destroy(stream_handle);
  context->driver().mem_free(address);
}

TEST_F(CudaResources, AFullDeviceIsAResourceErrorWithTheNumbers) {
  const auto context = retain();
  fake.device.memory_bytes = 1000;
  expect_error(Code::resource,
               {"cuMemAlloc(4096 bytes on device 0", "1000 of", "CUDA_ERROR_OUT_OF_MEMORY (out of memory)",
                "memory.cpp:"},
               [&] { cuda::DeviceMemory(context, 4096); });
  expect_error(Code::invalid_argument, {"bytes = 0"}, [&] { cuda::DeviceMemory(context, 0); });
}

TEST_F(CudaResources, AnErrorInTheMiddleOfAConstructorLeaksNothing) {
  const auto context = retain();
  fake.failures["cuMemHostGetDevicePointer_v2"] = Result::invalid_value;
  expect_error(Code::internal, {"cuMemHostGetDevicePointer(64 bytes)"},
               [&] { cuda::MappedHostMemory(context, 64); });
  fake.failures["cuModuleGetFunction"] = Result::not_found;
  expect_error(Code::internal, {"cuModuleGetFunction", "entry front", "extern \"C\""},
               [&] { cuda::Kernel(context, kImage, "front"); });
}

TEST_F(CudaResources, ACrashedKernelIsAFault) {
  const auto context = retain();
  const cuda::Stream stream(context);
  fake.failures["cuStreamSynchronize"] = Result::launch_failed;
  expect_error(Code::fault, {"cuStreamSynchronize", "CUDA_ERROR_LAUNCH_FAILED", "stream.cpp:"},
               [&] { stream.synchronize(); });
  fake.failures.clear();
}

TEST_F(CudaResources, AnErrorWithoutNameKeepsItsNumber) {
  const auto context = retain();
  const cuda::Stream stream(context);
  fake.failures["cuStreamSynchronize"] = static_cast<Result>(4711);
  expect_error(Code::internal, {"4711"}, [&] { stream.synchronize(); });
}

TEST_F(CudaResources, NotReadyIsNoError) {
  const auto context = retain();
  const cuda::Stream stream(context);
  EXPECT_TRUE(stream.is_done());
  fake.failures["cuStreamQuery"] = Result::not_ready;
  EXPECT_FALSE(stream.is_done());
}

TEST_F(CudaResources, MappedMemoryIsZeroedAndHasTwoAddresses) {
  const auto context = retain();
  const cuda::MappedHostMemory mapped(context, 256);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(mapped.host<unsigned char>()[i], 0);
  EXPECT_NE(mapped.device_address(), 0u);
}

TEST_F(CudaResources, FillsAndCopies) {
  const auto context = retain();
  const cuda::Stream stream(context);
  const cuda::DeviceMemory memory(context, 16);
  std::array<std::uint32_t, 4> words = {};
  stream.fill(memory.address(), 0xFFFFFFFFu, 3);
  stream.copy(words.data(), memory.address(), 12);
  EXPECT_THAT(words, ::testing::ElementsAre(0xFFFFFFFFu, 0xFFFFFFFFu, 0xFFFFFFFFu, 0u));
  stream.join(cuda::Stream(context));
}

TEST_F(CudaResources, ABorrowedStreamIsNotDestroyed) {
  const auto context = retain();
  const cuda::Stream own(context);
  { const cuda::Stream borrowed = cuda::Stream::borrow(context, own.handle()); }
  EXPECT_EQ(fake.live["stream"], 1);
}

TEST_F(CudaResources, ALaunchCarriesItsAttributes) {
  const auto context = retain();
  const cuda::Stream stream(context);
  const cuda::Kernel kernel(context, kImage, "front");
  kernel.launch_with(
      {.grid = 112, .cluster = 16, .threads = 288, .shared_bytes = 60 << 10, .dependent = true}, stream, 42);
  ASSERT_EQ(fake.launches.size(), 1u);
  const FakeLaunch& launch = fake.launches[0];
  EXPECT_EQ(launch.config.grid_x, 112u);
  EXPECT_EQ(launch.config.grid_y * launch.config.grid_z * launch.config.block_y * launch.config.block_z, 1u);
  EXPECT_EQ(launch.config.block_x, 288u);
  EXPECT_EQ(launch.config.shared_bytes, 60u << 10);
  EXPECT_EQ(launch.config.stream, stream.handle());
  EXPECT_EQ(launch.first_parameter, 42);
  ASSERT_NE(attribute(launch, LaunchAttributeId::cluster_dimension), nullptr);
  EXPECT_EQ(attribute(launch, LaunchAttributeId::cluster_dimension)->value.cluster.x, 16u);
  ASSERT_NE(attribute(launch, LaunchAttributeId::programmatic_stream_serialization), nullptr);
  EXPECT_EQ(attribute(launch, LaunchAttributeId::cooperative), nullptr);

  kernel.launch_with({.grid = 16, .cluster = 2, .threads = 32, .cooperative = true}, stream, 43);
  EXPECT_NE(attribute(fake.launches[1], LaunchAttributeId::cooperative), nullptr);
  EXPECT_EQ(attribute(fake.launches[1], LaunchAttributeId::programmatic_stream_serialization), nullptr);
  kernel.launch_with({.grid = 3, .cluster = 1, .threads = 32}, stream, 44);
  EXPECT_EQ(fake.launches[2].config.num_attributes, 0u);
}

TEST_F(CudaResources, RefusesALaunchThatCannotBe) {
  const auto context = retain();
  const cuda::Stream stream(context);
  const cuda::Kernel kernel(context, kImage, "front");
  const auto refuse = [&](const cuda::Launch& launch, const std::vector<std::string>& parts) {
    expect_error(Code::invalid_argument, parts, [&] { kernel.launch_with(launch, stream, 1); });
  };
  refuse({.grid = 15, .cluster = 2, .threads = 32}, {"front: grid = 15", "a multiple of the cluster's 2"});
  refuse({.grid = 0, .cluster = 1, .threads = 32}, {"front: grid = 0"});
  refuse({.grid = 32, .cluster = 32, .threads = 32}, {"front: cluster = 32", "1 to 16"});
  refuse({.grid = 1, .cluster = 1, .threads = 2048}, {"front: threads = 2048", "1 to 1024"});
  refuse({.grid = 1, .cluster = 1, .threads = 32, .dependent = true, .cooperative = true},
         {"front: dependent"});
  EXPECT_TRUE(fake.launches.empty());
}

TEST_F(CudaResources, ACooperativeLaunchThatDoesNotFitNamesItsGeometry) {
  const auto context = retain();
  const cuda::Stream stream(context);
  const cuda::Kernel kernel(context, kImage, "front");
  fake.failures["cuLaunchKernelEx"] = Result::cooperative_launch_too_large;
  expect_error(Code::resource,
               {"cuLaunchKernelEx(front: 256 blocks in clusters of 16, 288 threads", "cooperative"}, [&] {
                 kernel.launch_with({.grid = 256, .cluster = 16, .threads = 288, .cooperative = true}, stream,
                                    1);
               });
}

}  // namespace
}  // namespace moetail::testing
