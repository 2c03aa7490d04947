// SPDX-License-Identifier: Apache-2.0
// A box's memory on the fake device: what arm writes, where peers are, and what the host reads of a fault. And the store of loaded
// kernels, which refuses what does not fit before anything is launched.
#include <gmock/gmock.h>

#include "engine/cuda/box_memory.hpp"
#include "engine/cuda/kernel_store.hpp"
#include "protocol/sentinel.hpp"
#include "tests/cuda_testing.hpp"
#include "tests/expect_error.hpp"

namespace moetail::testing {
namespace {

using cuda::BoxMemory;
using protocol::Control;
using protocol::Region;

protocol::Shape box_shape() {
  protocol::Shape shape;
  shape.ranks = 2;
  shape.hidden = 64;
  shape.latent = 32;
  shape.top_k = 2;
  shape.capacity = 4;
  shape.poll_capacity = 2;
  return shape;
}

class CudaBox : public FakeCudaTest {
 protected:
  ~CudaBox() override { expect_nothing_lives(); }
  protocol::Layout layout = protocol::make_layout(box_shape());
};

TEST_F(CudaBox, IsOneAllocationOnEachSide) {
  const auto context = retain();
  const BoxMemory box(context, layout);
  EXPECT_EQ(fake.live["device memory"], 1);
  EXPECT_EQ(fake.live["host memory"], 1);
}

TEST_F(CudaBox, ArmFillsMailboxesWithTheSentinelAndControlWithZero) {
  const auto context = retain();
  const cuda::Stream stream(context);
  BoxMemory box(context, layout);
  auto* const words = reinterpret_cast<protocol::u32*>(box.device());
  const auto num_words = layout.total_bytes / 4;
  for (protocol::u64 i = 0; i < num_words; ++i) words[i] = 0x12345678;
  box.arm(stream);
  const auto control = layout.offset[static_cast<int>(Region::control)] / 4;
  for (protocol::u64 i = 0; i < num_words; ++i)
    ASSERT_EQ(words[i], i < control ? protocol::kEmptyWord : 0u) << "word " << i;
}

TEST_F(CudaBox, AViewHasEveryRanksAddress) {
  const auto context = retain();
  const BoxMemory a(context, layout);
  const BoxMemory b(context, layout);
  const BoxMemory* const boxes[] = {&a, &b};
  const auto view = BoxMemory::view(boxes, 1);
  EXPECT_EQ(view.rank, 1);
  EXPECT_EQ(view.peer[0], a.device());
  EXPECT_EQ(view.peer[1], b.device());
  EXPECT_EQ(reinterpret_cast<protocol::u8*>(view.control(Control::epoch)),
            b.device() + layout.control_at(Control::epoch));
  expect_error(Code::invalid_argument, {"rank = 2", "0 to 1"}, [&] { BoxMemory::view(boxes, 2); });
  expect_error(Code::invalid_argument, {"boxes: size = 1", "accepted is 2"},
               [&] { BoxMemory::view(std::span(boxes, 1), 0); });
}

TEST_F(CudaBox, TheHostReadsAFaultOnceItIsWritten) {
  const auto context = retain();
  const cuda::Stream stream(context);
  BoxMemory box(context, layout);
  box.arm(stream);
  EXPECT_FALSE(box.fault().has_value());
  // The fake device's memory is the host's: this is what a kernel does.
  kernels::FaultCell& cell = *box.fault_cell();
  cell.record.kind = protocol::FaultKind::deadline;
  cell.record.peer = 1;
  EXPECT_FALSE(box.fault().has_value()) << "half a record is none";
  cell.state = kernels::FaultCell::kWritten;
  ASSERT_TRUE(box.fault().has_value());
  EXPECT_EQ(box.fault()->peer, 1);
  box.stop();
  EXPECT_TRUE(box.is_stopped());
  EXPECT_NE(cell.stop, 0u);
  box.arm(stream);
  EXPECT_FALSE(box.fault().has_value());
  EXPECT_FALSE(box.is_stopped());
}

TEST_F(CudaBox, ABoxThatDoesNotFitIsAResourceError) {
  const auto context = retain();
  fake.device.memory_bytes = layout.total_bytes - 1;
  expect_error(Code::resource, {"cuMemAlloc", std::to_string(layout.total_bytes)},
               [&] { BoxMemory(context, layout); });
  EXPECT_EQ(fake.live["host memory"], 0);
}

class CudaStore : public FakeCudaTest {
 protected:
  ~CudaStore() override { expect_nothing_lives(); }

  std::shared_ptr<cuda::KernelCache> cache() {
    const cuda::Compiler compiler = {[] { return std::string("1.0"); },
                                     [this](const cuda::KernelSpec& spec) {
                                       ++compiled;
                                       cuda::CompileResult result;
                                       result.cubin.resize(4);
                                       cuda::KernelUsage usage;
                                       usage.name = spec.entry;
                                       usage.num_registers = 96;
                                       result.usage = {usage};
                                       return result;
                                     }};
    return std::make_shared<cuda::KernelCache>(compiler, std::nullopt);
  }

  int compiled = 0;
  cuda::KernelRequest request = {{"front", "source", {}, "sm_90a", {}},
                                 {.grid = 112, .cluster = 16, .threads = 288, .shared_bytes = 60 << 10},
                                 {.max_registers = 96, .min_resident_clusters = 7}};
};

TEST_F(CudaStore, LoadsOnceAndSetsWhatTheLaunchNeeds) {
  const auto context = retain();
  const cuda::Stream stream(context);
  cuda::KernelStore store(context, cache());
  const auto kernel = store.get(request, stream);
  EXPECT_EQ(store.get(request, stream), kernel);
  EXPECT_EQ(compiled, 1);
  EXPECT_EQ(fake.live["module"], 1);
  using Attribute = cuda::abi::FunctionAttribute;
  const auto attribute = [&](Attribute which) { return fake.function_attributes[static_cast<int>(which)]; };
  EXPECT_EQ(attribute(Attribute::max_dynamic_shared_bytes), 60 << 10);
  EXPECT_EQ(attribute(Attribute::preferred_shared_carveout), 100);
  EXPECT_EQ(attribute(Attribute::non_portable_cluster_size_allowed), 1);
  // Another geometry is another loaded kernel, from the same machine code.
  request.launch.shared_bytes = 50 << 10;
  EXPECT_NE(store.get(request, stream), kernel);
  EXPECT_EQ(compiled, 1);
}

TEST_F(CudaStore, UnderCaptureOnlyWhatIsWarm) {
  const auto context = retain();
  const cuda::Stream stream(context);
  cuda::KernelStore store(context, cache());
  stream.begin_capture();
  expect_error(Code::call_order, {"kernel front", "capturing", "warm-up"},
               [&] { store.get(request, stream); });
  EXPECT_EQ(compiled, 0);
  stream.end_capture();
  EXPECT_EQ(store.warm_up(request), cuda::KernelCache::Origin::compiler);
  EXPECT_EQ(store.warm_up(request), cuda::KernelCache::Origin::memory);
  stream.begin_capture();
  EXPECT_NE(store.get(request, stream), nullptr);
  stream.end_capture();
}

TEST_F(CudaStore, RefusesWhatExceedsItsBudget) {
  const auto context = retain();
  cuda::KernelStore store(context, cache());
  request.budget.max_registers = 88;
  expect_error(Code::unsupported, {"kernel front", "96 registers", "is 88"}, [&] { store.warm_up(request); });
  EXPECT_EQ(fake.live["module"], 0);
}

TEST_F(CudaStore, RefusesClustersThatWouldNotBeResidentTogether) {
  const auto context = retain();
  cuda::KernelStore store(context, cache());
  fake.device.resident_clusters = 6;
  expect_error(Code::unsupported, {"6 clusters of 16 blocks", "7 wait for each other"},
               [&] { store.warm_up(request); });
  EXPECT_EQ(fake.live["module"], 0);
}

}  // namespace
}  // namespace moetail::testing
