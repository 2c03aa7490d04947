// SPDX-License-Identifier: Apache-2.0
// Finding the driver, or saying in words why the engine cannot run: no library, a library that is none, an old driver, no device, a
// device that is too old. Each refusal beside the same machine without that fault.
#include <gmock/gmock.h>

#include <cstdio>
#include <cstdlib>

#include "engine/cuda/info.hpp"
#include "tests/cuda_testing.hpp"
#include "tests/expect_error.hpp"

namespace moetail::testing {
namespace {

using cuda::cuda_support_of;
using cuda::Driver;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CudaDriver : public FakeCudaTest {
 protected:
  void expect_refusal(const std::vector<std::string>& parts) {
    const auto support = cuda_support_of(MOETAIL_FAKE_CUDA);
    EXPECT_FALSE(support.usable);
    for (const std::string& part : parts) EXPECT_THAT(support.reason, HasSubstr(part));
    // A context is refused for the same reason.
    expect_error(Code::unsupported, parts, [&] { retain(); });
  }
};

TEST_F(CudaDriver, IsUsableWhereNothingIsWrong) {
  const auto support = cuda_support_of(MOETAIL_FAKE_CUDA);
  EXPECT_TRUE(support.usable) << support.reason;
  EXPECT_THAT(support.reason, IsEmpty());
  EXPECT_EQ(fake.live["primary context"], 0) << "a probe makes no context";
}

TEST(CudaDriverAbsent, IsAReasonAndNoCrash) {
  const auto support = cuda_support_of("libmoetail-no-such-driver.so.1");
  EXPECT_FALSE(support.usable);
  EXPECT_THAT(support.reason,
              AllOf(HasSubstr("no CUDA driver"), HasSubstr("libmoetail-no-such-driver.so.1")));
  expect_error(Code::unsupported, {"no CUDA driver"}, [] { Driver::load("libmoetail-no-such-driver.so.1"); });
}

TEST(CudaDriverAbsent, ALibraryWithoutItsFunctionsIsNone) {
  expect_error(Code::unsupported, {"libm.so.6", "no function cu"}, [] { Driver::load("libm.so.6"); });
}

TEST_F(CudaDriver, RefusesAnOldDriver) {
  fake.device.version = 11080;
  expect_refusal({"CUDA 11.8", "accepted is 12.0 or newer"});
  fake.device.version = 12000;
  EXPECT_TRUE(cuda_support_of(MOETAIL_FAKE_CUDA).usable);
}

TEST_F(CudaDriver, SaysThatItDoesNotStart) {
  fake.failures["cuInit"] = cuda::abi::Result::no_device;
  expect_refusal({"cuInit", "CUDA_ERROR_NO_DEVICE"});
}

TEST_F(CudaDriver, RefusesAMachineWithoutDevice) {
  fake.device.num_devices = 0;
  expect_refusal({"no device"});
}

TEST_F(CudaDriver, RefusesAnOldArchitecture) {
  fake.device.major = 8;
  fake.device.minor = 6;
  expect_refusal({"device 0", "Fake GPU", "architecture 8.6", "accepted is 9.0"});
}

TEST_F(CudaDriver, RefusesADeviceWithoutWhatKernelsNeed) {
  fake.device.has_clusters = false;
  expect_refusal({"no cluster launch"});
  fake.device = {};
  fake.device.maps_host_memory = false;
  expect_refusal({"host memory cannot be mapped"});
  fake.device = {};
  fake.device.compute_mode = 2;
  expect_refusal({"compute mode"});
}

TEST_F(CudaDriver, NamesTheOrdinalThatDoesNotExist) {
  const auto support = cuda_support_of(MOETAIL_FAKE_CUDA, 3);
  EXPECT_FALSE(support.usable);
  EXPECT_THAT(support.reason, AllOf(HasSubstr("device = 3"), HasSubstr("accepted is 0 to 0")));
}

TEST_F(CudaDriver, ReportsTheDevicesFacts) {
  const auto context = retain();
  const auto& facts = context->facts();
  EXPECT_EQ(facts.name, "Fake GPU");
  EXPECT_EQ(facts.arch(), "sm_90a");
  EXPECT_EQ(facts.uuid, "GPU-00112233-4455-6677-8899-aabbccddeeff");
  EXPECT_EQ(facts.num_sms, 132);
  EXPECT_EQ(facts.l2_bytes, std::size_t{60} << 20);
  EXPECT_EQ(facts.shared_bytes_per_block, std::size_t{227} << 10);
  EXPECT_TRUE(facts.has_clusters);
  EXPECT_FALSE(facts.has_multicast);
}

TEST_F(CudaDriver, AsksForResidentClusters) {
  const auto context = retain();
  EXPECT_EQ(cuda::resident_clusters(context, 16, 256, 100 << 10), 7);
  EXPECT_EQ(
      fake.function_attributes[static_cast<int>(cuda::abi::FunctionAttribute::max_dynamic_shared_bytes)],
      100 << 10);
  EXPECT_EQ(fake.function_attributes[static_cast<int>(
                cuda::abi::FunctionAttribute::non_portable_cluster_size_allowed)],
            1);
  EXPECT_EQ(cuda::resident_clusters(context, 1, 256, 60 << 10), 2 * 132);
  EXPECT_EQ(fake.live["module"], 0);
}

// The driver of the machine the test runs on, whatever that is.
TEST(CudaInfo, SaysWhatThereIsOrWhyNot) {
  const auto info = cuda::cuda_info();
  EXPECT_NE(info.support.usable, info.support.reason.size() > 0);
  EXPECT_THAT(info.driver, Not(IsEmpty()));
  EXPECT_THAT(info.nvrtc, Not(IsEmpty()));
  EXPECT_EQ(info.support.usable, info.clusters.size() > 0);
}

// The machine's driver is looked for once in a process, so these look for it in one of their own.
class CudaEnvironment : public ::testing::Test {
 protected:
  void SetUp() override { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }

  template <typename Find>
  static void print_and_exit(const char* name, const char* value, const Find& find) {
    setenv(name, value, 1);
    fputs(find().c_str(), stderr);
    std::exit(0);
  }
  static std::string support_text() {
    const auto support = cuda::cuda_support();
    return support.usable ? "usable" : support.reason;
  }
};

TEST_F(CudaEnvironment, NamesTheDriver) {
  EXPECT_EXIT(print_and_exit("MOETAIL_CUDA_DRIVER", MOETAIL_FAKE_CUDA, support_text),
              ::testing::ExitedWithCode(0), "^usable$");
  EXPECT_EXIT(print_and_exit("MOETAIL_CUDA_DRIVER", "libmoetail-no-such-driver.so.1", support_text),
              ::testing::ExitedWithCode(0), "no CUDA driver: libmoetail-no-such-driver.so.1");
}

TEST_F(CudaEnvironment, NamesTheOnlyCompilerThatIsTried) {
  const auto nvrtc_text = [] { return cuda::cuda_info().nvrtc; };
  EXPECT_EXIT(print_and_exit("MOETAIL_NVRTC", "libmoetail-no-such-nvrtc.so", nvrtc_text),
              ::testing::ExitedWithCode(0),
              "^no NVRTC: libmoetail-no-such-nvrtc.so: [^;]*MOETAIL_NVRTC may name the library");
}

TEST(CudaVersionText, IsMajorAndMinor) {
  EXPECT_EQ(cuda::version_text(13000), "13.0");
  EXPECT_EQ(cuda::version_text(12040), "12.4");
}

}  // namespace
}  // namespace moetail::testing
