// SPDX-License-Identifier: Apache-2.0
// cuBLASLt as the benchmark's baseline calls it, over memory that the processor reads: the emulated GPU's. Three algorithms: one that does not
// run, a slow one and a fast one. MOETAIL_FAKE_CUBLASLT=wrong: products are a quarter too large.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include "bench/cuda/cublaslt_abi.hpp"
#include "protocol/numerics.hpp"

using namespace moetail::bench::blaslt;
using moetail::protocol::u16;

#define EXPORT __attribute__((visibility("default")))

namespace {

constexpr int kAlgorithms = 3;
enum Kind : std::uint64_t { refuses = 0, slow = 1, fast = 2 };
constexpr unsigned kSlowUs = 20000;

struct Layout {
  std::uint64_t rows, columns;
  std::int64_t leading;
};
struct Desc {
  bool transposes_a = false;
};

/// A product to be made when its stream comes to it, as often as a graph replays it; so nobody frees it.
struct Work {
  const u16 *a, *b;
  u16* d;
  Layout la, lb, ld;
  bool is_slow;

  void run() const {
    if (is_slow) usleep(kSlowUs);
    const char* const mood = std::getenv("MOETAIL_FAKE_CUBLASLT");
    const float factor = mood != nullptr && std::string_view(mood) == "wrong" ? 1.25f : 1.0f;
    for (std::uint64_t column = 0; column < ld.columns; ++column)
      for (std::uint64_t row = 0; row < ld.rows; ++row) {
        float sum = 0;
        for (std::uint64_t k = 0; k < la.rows; ++k)
          sum += moetail::protocol::f32_from_bf16(a[row * static_cast<std::uint64_t>(la.leading) + k]) *
                 moetail::protocol::f32_from_bf16(b[column * static_cast<std::uint64_t>(lb.leading) + k]);
        d[column * static_cast<std::uint64_t>(ld.leading) + row] =
            moetail::protocol::bf16_from_f32(factor * sum);
      }
  }
};

using LaunchHostFunc = int (*)(void* stream, void (*function)(void*), void* data);

LaunchHostFunc launch_host_func() {
  void* const driver = dlopen(std::getenv("MOETAIL_CUDA_DRIVER"), RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<LaunchHostFunc>(dlsym(driver, "cuLaunchHostFunc"));
}

}  // namespace

extern "C" {

EXPORT Status cublasLtCreate(Handle* handle) {
  static int one;
  *handle = &one;
  return Status::success;
}
EXPORT Status cublasLtDestroy(Handle) {
  return Status::success;
}
EXPORT std::size_t cublasLtGetVersion() {
  return 990102;
}
EXPORT Status cublasLtMatmulDescCreate(MatmulDesc* desc, ComputeType compute, DataType scale) {
  if (compute != ComputeType::f32 || scale != DataType::f32) return Status::not_supported;
  *desc = new Desc;
  return Status::success;
}
EXPORT Status cublasLtMatmulDescDestroy(MatmulDesc desc) {
  delete static_cast<Desc*>(desc);
  return Status::success;
}
EXPORT Status cublasLtMatmulDescSetAttribute(MatmulDesc desc, DescAttribute which, const void* value,
                                             std::size_t bytes) {
  if (which != DescAttribute::trans_a || bytes != sizeof(Transpose)) return Status::not_supported;
  static_cast<Desc*>(desc)->transposes_a = *static_cast<const Transpose*>(value) == Transpose::yes;
  return Status::success;
}
EXPORT Status cublasLtMatrixLayoutCreate(MatrixLayout* layout, DataType type, std::uint64_t rows,
                                         std::uint64_t columns, std::int64_t leading) {
  if (type != DataType::bf16) return Status::not_supported;
  *layout = new Layout{rows, columns, leading};
  return Status::success;
}
EXPORT Status cublasLtMatrixLayoutDestroy(MatrixLayout layout) {
  delete static_cast<Layout*>(layout);
  return Status::success;
}
EXPORT Status cublasLtMatmulPreferenceCreate(Preference* preference) {
  *preference = new std::size_t{0};
  return Status::success;
}
EXPORT Status cublasLtMatmulPreferenceDestroy(Preference preference) {
  delete static_cast<std::size_t*>(preference);
  return Status::success;
}
EXPORT Status cublasLtMatmulPreferenceSetAttribute(Preference preference, PreferenceAttribute,
                                                   const void* value, std::size_t) {
  *static_cast<std::size_t*>(preference) = *static_cast<const std::size_t*>(value);
  return Status::success;
}
EXPORT Status cublasLtMatmulAlgoGetHeuristic(Handle, MatmulDesc, MatrixLayout, MatrixLayout, MatrixLayout,
                                             MatrixLayout, Preference, int requested,
                                             HeuristicResult* results, int* returned) {
  if (requested < kAlgorithms) return Status::not_supported;
  for (std::uint64_t i = 0; i < kAlgorithms; ++i) {
    results[i] = {};
    results[i].algo.data[0] = i;
  }
  *returned = kAlgorithms;
  return Status::success;
}
EXPORT Status cublasLtMatmul(Handle, MatmulDesc desc, const void* alpha, const void* a, MatrixLayout la,
                             const void* b, MatrixLayout lb, const void* beta, const void*, MatrixLayout,
                             void* d, MatrixLayout ld, const Algo* algo, void*, std::size_t, Stream stream) {
  if (algo->data[0] == refuses || !static_cast<Desc*>(desc)->transposes_a ||
      *static_cast<const float*>(alpha) != 1.0f || *static_cast<const float*>(beta) != 0.0f)
    return Status::not_supported;
  static std::vector<std::unique_ptr<Work>> all;
  all.push_back(std::make_unique<Work>(Work{
      static_cast<const u16*>(a), static_cast<const u16*>(b), static_cast<u16*>(d), *static_cast<Layout*>(la),
      *static_cast<Layout*>(lb), *static_cast<Layout*>(ld), algo->data[0] == slow}));
  static const LaunchHostFunc launch = launch_host_func();
  launch(
      stream, [](void* data) { static_cast<const Work*>(data)->run(); }, all.back().get());
  return Status::success;
}

}  // extern "C"
