// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda/cublaslt.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>

#include "base/env.hpp"
#include "base/error.hpp"

namespace moetail::bench {
namespace {

using blaslt::Status;

constexpr const char* kBlasSonames[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
// What PyTorch gives it on Hopper.
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
constexpr int kMostAlgorithms = 64;
constexpr int kAlgorithmReplays = 3;

std::vector<std::string> blas_candidates() {
  if (const auto only = base::read_env(base::kCublasLt)) return {*only};
  std::vector<std::string> names(std::begin(kBlasSonames), std::end(kBlasSonames));
  for (const auto& variable : {base::kCudaHome, base::kCudaPath})
    if (const auto root = base::read_env(variable))
      for (const char* folder : {"lib64", "lib"})
        for (const char* soname : kBlasSonames)
          names.push_back(fmt::format("{}/{}/{}", *root, folder, soname));
  return names;
}

}  // namespace

CublasLt::CublasLt(const std::string& library) : library_(library) {
  // Not closed again, as the driver is not: it may have threads.
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const reason = dlerror();
    base::fail(Code::unsupported, "{}", reason != nullptr ? reason : library.c_str());
  }
  const auto find = [&](auto& member, const char* symbol) {
    void* const found = dlsym(handle, symbol);
    if (found == nullptr) base::fail(Code::unsupported, "{} has no function {}", library, symbol);
    std::memcpy(&member, &found, sizeof member);
  };
  find(functions_.create, "cublasLtCreate");
  find(functions_.destroy, "cublasLtDestroy");
  find(functions_.version, "cublasLtGetVersion");
  find(functions_.desc_create, "cublasLtMatmulDescCreate");
  find(functions_.desc_destroy, "cublasLtMatmulDescDestroy");
  find(functions_.desc_set, "cublasLtMatmulDescSetAttribute");
  find(functions_.layout_create, "cublasLtMatrixLayoutCreate");
  find(functions_.layout_destroy, "cublasLtMatrixLayoutDestroy");
  find(functions_.preference_create, "cublasLtMatmulPreferenceCreate");
  find(functions_.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  find(functions_.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  find(functions_.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(functions_.matmul, "cublasLtMatmul");
}

std::shared_ptr<const CublasLt> CublasLt::of_machine() {
  std::string tried;
  for (const std::string& name : blas_candidates()) {
    try {
      return std::make_shared<const CublasLt>(name);
    } catch (const Error& error) {
      tried += (tried.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  base::fail(Code::unsupported, "no cuBLASLt ({} names another library): {}", base::kCublasLt.name, tried);
}

std::string CublasLt::version() const {
  const std::size_t version = functions_.version();
  // Since 12.0.0 the major version counts ten thousands.
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

void CublasLt::check(Status status, const char* call) const {
  if (status == Status::success) return;
  base::fail(status == Status::not_supported ? Code::unsupported : Code::internal, "{} of {}: status {}",
             call, library_, static_cast<int>(status));
}

ShardGemm::ShardGemm(const Gpu& gpu, std::shared_ptr<const CublasLt> library, int rows, int columns,
                     int batch)
    : gpu_(gpu), library_(std::move(library)), workspace_(gpu.allocate(kWorkspaceBytes)) {
  const cuda::ContextScope scope(*gpu_.context());
  const blaslt::Functions& lt = library_->functions();
  blaslt::Preference preference = nullptr;
  try {
    library_->check(lt.create(&handle_), "cublasLtCreate");
    library_->check(lt.desc_create(&desc_, blaslt::ComputeType::f32, blaslt::DataType::f32),
                    "cublasLtMatmulDescCreate");
    // Its matrices are column-major: to it the weights are [columns, rows], x is [columns, batch] and out [rows, batch].
    const auto transposed = blaslt::Transpose::yes;
    library_->check(lt.desc_set(desc_, blaslt::DescAttribute::trans_a, &transposed, sizeof transposed),
                    "cublasLtMatmulDescSetAttribute");
    const auto layout = [&](blaslt::MatrixLayout& made, int height, int width) {
      library_->check(lt.layout_create(&made, blaslt::DataType::bf16, static_cast<std::uint64_t>(height),
                                       static_cast<std::uint64_t>(width), height),
                      "cublasLtMatrixLayoutCreate");
    };
    layout(weights_, columns, rows);
    layout(x_, columns, batch);
    layout(out_, rows, batch);
    library_->check(lt.preference_create(&preference), "cublasLtMatmulPreferenceCreate");
    const std::size_t most = kWorkspaceBytes;
    library_->check(
        lt.preference_set(preference, blaslt::PreferenceAttribute::max_workspace_bytes, &most, sizeof most),
        "cublasLtMatmulPreferenceSetAttribute");
    algorithms_.resize(kMostAlgorithms);
    int found = 0;
    library_->check(lt.heuristic(handle_, desc_, weights_, x_, out_, out_, preference, kMostAlgorithms,
                                 algorithms_.data(), &found),
                    "cublasLtMatmulAlgoGetHeuristic");
    algorithms_.resize(static_cast<std::size_t>(found));
    std::erase_if(algorithms_, [](const auto& one) { return one.state != Status::success; });
    if (algorithms_.empty())
      base::fail(Code::unsupported, "cuBLASLt has no algorithm for [{}, {}] x [{}, {}] bf16", rows, columns,
                 columns, batch);
  } catch (...) {
    if (preference != nullptr) lt.preference_destroy(preference);
    destroy();
    throw;
  }
  lt.preference_destroy(preference);
}

ShardGemm::~ShardGemm() {
  destroy();
}

void ShardGemm::destroy() noexcept {
  try {
    const cuda::ContextScope scope(*gpu_.context());
    const blaslt::Functions& lt = library_->functions();
    for (blaslt::MatrixLayout layout : {weights_, x_, out_})
      if (layout != nullptr) lt.layout_destroy(layout);
    if (desc_ != nullptr) lt.desc_destroy(desc_);
    if (handle_ != nullptr) lt.destroy(handle_);
  } catch (...) {  // the context is lost
  }
}

Status ShardGemm::run(const blaslt::HeuristicResult& algorithm, const Bf16* weights, const Bf16* x,
                      Bf16* out) const {
  const cuda::ContextScope scope(*gpu_.context());
  const float one = 1.0f, zero = 0.0f;
  return library_->functions().matmul(handle_, desc_, &one, weights, weights_, x, x_, &zero, out, out_, out,
                                      out_, &algorithm.algo, workspace_.as<void>(), workspace_.bytes(),
                                      gpu_.native_stream());
}

void ShardGemm::choose(const std::vector<const Bf16*>& weights, const Bf16* x, Bf16* out) {
  double least = -1;
  std::size_t fastest = 0;
  for (std::size_t i = 0; i < algorithms_.size(); ++i) {
    // Outside of a capture first: the library loads a kernel at its first call, and an algorithm that fails is none.
    if (run(algorithms_[i], weights.front(), x, out) != Status::success) continue;
    gpu_.stream().synchronize();
    chosen_ = i;
    const TimedGraph graph(gpu_, [&] {
      for (const Bf16* one : weights) enqueue(one, x, out);
    });
    const double us = graph.least_us(kAlgorithmReplays);
    if (least >= 0 && us >= least) continue;
    least = us;
    fastest = i;
  }
  if (least < 0) base::fail(Code::unsupported, "none of cuBLASLt's {} algorithms runs", algorithms_.size());
  chosen_ = fastest;
}

void ShardGemm::enqueue(const Bf16* weights, const Bf16* x, Bf16* out) const {
  library_->check(run(algorithms_[chosen_], weights, x, out), "cublasLtMatmul");
}

}  // namespace moetail::bench
