// SPDX-License-Identifier: Apache-2.0
// The run-time compiler: a kernel over the embedded protocol headers becomes machine code, with no GPU and no CUDA header; source that
// does not compile comes back with the compiler's words; ptxas' report is read right.
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "engine/cuda/sources.hpp"
#include "tests/cuda_testing.hpp"
#include "tests/expect_error.hpp"

namespace moetail::testing {
namespace {

using cuda::CompileRequest;
using cuda::KernelUsage;
using cuda::parse_ptxas_log;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kTiny = R"(
#include "protocol/ring.hpp"
extern "C" __global__ void tiny(int* out) {
  __shared__ int rows[64];
  rows[threadIdx.x] = moetail::protocol::slot_of(EPOCH);
  __syncthreads();
  out[threadIdx.x] = rows[63 - threadIdx.x];
}
)";

CompileRequest tiny_request() {
  CompileRequest request;
  request.name = "tiny";
  request.source = kTiny;
  request.headers = cuda::embedded_headers();
  request.arch = "sm_90a";
  request.defines = {"EPOCH=7"};
  return request;
}

class CudaNvrtc : public ::testing::Test {
 protected:
  void SetUp() override {
    if (nvrtc == nullptr) GTEST_SKIP() << "NVRTC is not installed on this machine";
  }
  std::shared_ptr<const cuda::Nvrtc> nvrtc = find_nvrtc();
};

TEST_F(CudaNvrtc, CompilesOverTheEmbeddedHeaders) {
  const auto result = nvrtc->compile(tiny_request());
  // An ELF file, which is what a cubin is.
  ASSERT_GT(result.cubin.size(), 4u);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(result.cubin.data()), 4),
            "\x7f"
            "ELF");
  EXPECT_THAT(result.ptx, IsEmpty());
  ASSERT_EQ(result.usage.size(), 1u) << result.log;
  EXPECT_EQ(result.usage[0].name, "tiny");
  EXPECT_GT(result.usage[0].num_registers, 0);
  EXPECT_EQ(result.usage[0].static_shared_bytes, 256u);
  EXPECT_EQ(result.usage[0].spill_store_bytes, 0u);
  EXPECT_EQ(result.usage[0].num_barriers, 1);
}

TEST_F(CudaNvrtc, GivesPtxWhereAsked) {
  CompileRequest request = tiny_request();
  request.wants_ptx = true;
  EXPECT_THAT(nvrtc->compile(request).ptx, HasSubstr(".entry tiny"));
}

TEST_F(CudaNvrtc, ReportsSpills) {
  CompileRequest request = tiny_request();
  request.source = R"(extern "C" __global__ void tiny(const float* in, float* out) {
  float value[96];
  for (int i = 0; i < 96; ++i) value[i] = in[i * 32 + threadIdx.x];
  __syncthreads();
  for (int i = 0; i < 96; ++i) out[i * 32 + threadIdx.x] = value[i] * value[95 - i];
})";
  EXPECT_EQ(nvrtc->compile(request).usage.at(0).spill_store_bytes, 0u);
  request.options = {"--maxrregcount=32"};
  const auto usage = nvrtc->compile(request).usage.at(0);
  EXPECT_GT(usage.spill_store_bytes, 0u);
  EXPECT_LE(usage.num_registers, 32);
}

TEST_F(CudaNvrtc, ContractsNothingByItself) {
  CompileRequest request = tiny_request();
  request.source =
      R"(extern "C" __global__ void tiny(const float* in, float* out) { *out = in[0] * in[1] + in[2]; })";
  request.wants_ptx = true;
  EXPECT_THAT(nvrtc->compile(request).ptx, ::testing::Not(HasSubstr("fma.rn")));
  request.options = {"--fmad=true"};  // the control: it would, if it were let
  EXPECT_THAT(nvrtc->compile(request).ptx, HasSubstr("fma.rn"));
}

TEST_F(CudaNvrtc, ACompileErrorBringsTheLog) {
  CompileRequest request = tiny_request();
  request.source = "extern \"C\" __global__ void tiny() { no_such_function(); }";
  expect_error(Code::internal,
               {"kernel tiny", "sm_90a", "NVRTC " + nvrtc->version(), "no_such_function", "tiny.cu(1)"},
               [&] { nvrtc->compile(request); });
}

TEST_F(CudaNvrtc, AnUnknownArchitectureIsUnsupported) {
  CompileRequest request = tiny_request();
  request.arch = "sm_999";
  expect_error(Code::unsupported, {"kernel tiny", "sm_999"}, [&] { nvrtc->compile(request); });
}

TEST_F(CudaNvrtc, AVirtualArchitectureHasNoMachineCode) {
  CompileRequest request = tiny_request();
  request.arch = "compute_90a";
  expect_error(Code::unsupported, {"no machine code", "compute_90a"}, [&] { nvrtc->compile(request); });
}

TEST(CudaNvrtcAbsent, IsAReason) {
  expect_error(Code::unsupported, {"no NVRTC", "libmoetail-no-such-nvrtc.so"},
               [] { cuda::Nvrtc::load("libmoetail-no-such-nvrtc.so"); });
  expect_error(Code::unsupported, {"libm.so.6", "no function nvrtcVersion"},
               [] { cuda::Nvrtc::load("libm.so.6"); });
}

TEST(CudaPtxasLog, ReadsRegistersSpillsAndSharedMemory) {
  const auto usage = parse_ptxas_log(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'front' for 'sm_90a'\n"
      "ptxas info    : Function properties for front\n"
      "    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n"
      "ptxas info    : Used 88 registers, used 2 barriers, 16 bytes cumulative stack size, 1040 bytes smem\n"
      "ptxas info    : Compile time = 12.345 ms\n"
      "ptxas info    : Compiling entry function 'take' for 'sm_90a'\n"
      "ptxas info    : Function properties for take\n"
      "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 10 registers, used 0 barriers, 400 bytes cmem[0]\n");
  ASSERT_EQ(usage.size(), 2u);
  EXPECT_EQ(usage[0].name, "front");
  EXPECT_EQ(usage[0].num_registers, 88);
  EXPECT_EQ(usage[0].num_barriers, 2);
  EXPECT_EQ(usage[0].stack_bytes, 16u);
  EXPECT_EQ(usage[0].spill_store_bytes, 8u);
  EXPECT_EQ(usage[0].spill_load_bytes, 12u);
  EXPECT_EQ(usage[0].static_shared_bytes, 1040u);
  EXPECT_EQ(usage[1].name, "take");
  EXPECT_EQ(usage[1].num_registers, 10);
  EXPECT_EQ(usage[1].static_shared_bytes, 0u);
}

TEST(CudaPtxasLog, AFunctionThatIsNoEntryIsNotTheEntrys) {
  const auto usage = parse_ptxas_log(
      "ptxas info    : Compiling entry function 'front' for 'sm_90a'\n"
      "ptxas info    : Function properties for raise_fault\n"
      "    64 bytes stack frame, 40 bytes spill stores, 40 bytes spill loads\n"
      "ptxas info    : Function properties for front\n"
      "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 88 registers\n"
      "ptxas info    : Function properties for other\n"
      "    64 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads\n");
  ASSERT_EQ(usage.size(), 1u);
  EXPECT_EQ(usage[0].stack_bytes, 0u);
  EXPECT_EQ(usage[0].spill_store_bytes, 0u);
  EXPECT_EQ(usage[0].num_registers, 88);
}

TEST(CudaPtxasLog, OtherTextHasNoKernels) {
  EXPECT_THAT(parse_ptxas_log(""), IsEmpty());
  EXPECT_THAT(parse_ptxas_log("tiny.cu(1): warning #177-D: variable was declared but never referenced\n"),
              IsEmpty());
}

TEST(CudaSources, AreTheFilesOfTheTree) {
  const auto headers = cuda::embedded_headers();
  ASSERT_FALSE(headers.empty());
  EXPECT_TRUE(std::is_sorted(headers.begin(), headers.end(),
                             [](const auto& a, const auto& b) { return a.name < b.name; }));
  for (const auto& header : headers) {
    const char* const root = header.name.rfind("moetail/", 0) == 0 ? "/include/" : "/src/";
    std::ifstream file(std::string(MOETAIL_SOURCE_DIR) + root + header.name, std::ios::binary);
    EXPECT_EQ(header.text, std::string(std::istreambuf_iterator<char>(file), {})) << header.name;
  }
  EXPECT_EQ(std::string(cuda::embedded_headers_hash()).size(), 16u);
}

TEST(CudaSources, HoldEveryProtocolHeaderAndNoPlan) {
  const auto headers = cuda::embedded_headers();
  const auto has = [&](const std::string& name) {
    return std::any_of(headers.begin(), headers.end(),
                       [&](const auto& header) { return header.name == name; });
  };
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(MOETAIL_SOURCE_DIR) + "/src/protocol"))
    EXPECT_EQ(has("protocol/" + entry.path().filename().string()), entry.path().extension() == ".hpp")
        << entry.path();
  EXPECT_FALSE(has("kernels/plan.hpp"));
}

}  // namespace
}  // namespace moetail::testing
