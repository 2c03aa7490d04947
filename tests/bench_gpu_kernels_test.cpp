// SPDX-License-Identifier: Apache-2.0
// The benchmark's own kernels, compiled for every architecture without a GPU: no spills, and the accesses that they are about.
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "bench/cuda/gpu.hpp"
#include "engine/cuda/nvrtc.hpp"
#include "engine/cuda/sources.hpp"

namespace moetail::bench {
namespace {

class BenchGpuKernels : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::string reason;
    try {
      nvrtc_ = cuda::Nvrtc::of_machine();
    } catch (const Error& error) {
      reason = error.what();
    }
#ifdef MOETAIL_TOOLKIT_LIBRARIES
    if (!nvrtc_) nvrtc_ = cuda::Nvrtc::load(MOETAIL_TOOLKIT_LIBRARIES "/libnvrtc.so.13");
#endif
    if (!nvrtc_) GTEST_SKIP() << reason;
  }
  cuda::CompileResult compile(const char* source, const std::vector<std::string>& defines = {}) const {
    cuda::CompileRequest request;
    request.name = "bench";
    request.source = source;
    request.headers = cuda::embedded_headers();
    request.arch = GetParam();
    request.defines = defines;
    request.wants_ptx = true;
    return nvrtc_->compile(request);
  }

 private:
  std::shared_ptr<const cuda::Nvrtc> nvrtc_;
};

void expect_lean(const cuda::CompileResult& result, std::size_t entries) {
  EXPECT_EQ(result.usage.size(), entries) << result.log;
  for (const cuda::KernelUsage& usage : result.usage) {
    EXPECT_EQ(usage.spill_store_bytes + usage.stack_bytes, 0u) << usage.name;
    EXPECT_LE(usage.num_registers, 96) << usage.name;
  }
}

TEST_P(BenchGpuKernels, ProbesCompileToWhatTheyMeasure) {
  const auto result = compile(kProbeKernels);
  expect_lean(result, 5);
  for (const char* instruction :
       {"griddepcontrol.launch_dependents", "griddepcontrol.wait", "ld.global.v4.u32",
        "st.relaxed.sys.global.u32", "ld.relaxed.sys.global.u32", "st.async.shared::cluster",
        "mbarrier.try_wait"})
    EXPECT_NE(result.ptx.find(instruction), std::string::npos) << instruction;
}

TEST_P(BenchGpuKernels, ThePipelinesKernelsCompileForShapesAndTypes) {
  for (const char* fp32 : {"false", "true"}) {
    const std::string flag = fp32;
    expect_lean(compile(kUnfusedKernels, {"UNFUSED_LATENT=3584", "UNFUSED_SHARD=896", "UNFUSED_HIDDEN=7168",
                                          "UNFUSED_TOP_K=16", "UNFUSED_EPS=1e-5f",
                                          "UNFUSED_WEIGHTS_FP32=" + flag, "UNFUSED_RESIDUAL=" + flag}),
                3);
    expect_lean(compile(kUnfusedKernels,
                        {"UNFUSED_LATENT=136", "UNFUSED_SHARD=24", "UNFUSED_HIDDEN=48", "UNFUSED_TOP_K=5",
                         "UNFUSED_EPS=0x1p-20f", "UNFUSED_WEIGHTS_FP32=" + flag, "UNFUSED_RESIDUAL=" + flag}),
                3);
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, BenchGpuKernels,
                         testing::Values("sm_90a", "sm_100a", "sm_103a", "sm_120a"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace moetail::bench
