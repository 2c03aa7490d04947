// SPDX-License-Identifier: Apache-2.0
// Our declarations of cuBLASLt's interface against cublasLt.h: sizes, offsets, numbers and signatures, at compile time where there is a
// toolkit; and the library itself, as far as it goes without a GPU.
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "bench/cuda/cublaslt.hpp"

#ifdef MOETAIL_HAS_CUDA_H
#if __has_include(<cublasLt.h>)
#define MOETAIL_HAS_CUBLASLT_H 1
#include <cublasLt.h>

#include <type_traits>
#endif
#endif

namespace moetail::bench::blaslt {
namespace {

#ifdef MOETAIL_HAS_CUBLASLT_H
template <typename Ours, typename Theirs>
constexpr bool kSameSize = sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs);

static_assert(kSameSize<Status, cublasStatus_t> && kSameSize<ComputeType, cublasComputeType_t> &&
              kSameSize<DataType, cudaDataType_t> && kSameSize<Transpose, cublasOperation_t> &&
              kSameSize<DescAttribute, cublasLtMatmulDescAttributes_t> &&
              kSameSize<PreferenceAttribute, cublasLtMatmulPreferenceAttributes_t> &&
              kSameSize<Handle, cublasLtHandle_t> && kSameSize<Stream, cudaStream_t> &&
              kSameSize<Algo, cublasLtMatmulAlgo_t> &&
              kSameSize<HeuristicResult, cublasLtMatmulHeuristicResult_t>);
static_assert(offsetof(HeuristicResult, algo) == offsetof(cublasLtMatmulHeuristicResult_t, algo) &&
              offsetof(HeuristicResult, workspace_bytes) ==
                  offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) &&
              offsetof(HeuristicResult, state) == offsetof(cublasLtMatmulHeuristicResult_t, state) &&
              offsetof(HeuristicResult, waves) == offsetof(cublasLtMatmulHeuristicResult_t, wavesCount));
static_assert(static_cast<int>(Status::success) == CUBLAS_STATUS_SUCCESS &&
              static_cast<int>(Status::not_supported) == CUBLAS_STATUS_NOT_SUPPORTED &&
              static_cast<int>(ComputeType::f32) == CUBLAS_COMPUTE_32F &&
              static_cast<int>(DataType::f32) == CUDA_R_32F &&
              static_cast<int>(DataType::bf16) == CUDA_R_16BF &&
              static_cast<int>(Transpose::no) == CUBLAS_OP_N &&
              static_cast<int>(Transpose::yes) == CUBLAS_OP_T &&
              static_cast<int>(DescAttribute::trans_a) == CUBLASLT_MATMUL_DESC_TRANSA &&
              static_cast<int>(DescAttribute::trans_b) == CUBLASLT_MATMUL_DESC_TRANSB &&
              static_cast<int>(PreferenceAttribute::max_workspace_bytes) ==
                  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);

/// Two functions that take and give values of the same sizes in the same order: the call is the same.
template <typename Ours, typename Theirs>
struct SameCall : std::false_type {};
template <typename R, typename... A, typename S, typename... B>
struct SameCall<R (*)(A...), S (*)(B...)> {
  static constexpr bool value = sizeof...(A) == sizeof...(B) && sizeof(R) == sizeof(S) && [] {
    if constexpr (sizeof...(A) == sizeof...(B))
      return ((sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>)&&...);
    return false;
  }();
};
#define SAME_CALL(ours, theirs) static_assert(SameCall<decltype(Functions::ours), decltype(&theirs)>::value)
SAME_CALL(create, cublasLtCreate);
SAME_CALL(destroy, cublasLtDestroy);
SAME_CALL(version, cublasLtGetVersion);
SAME_CALL(desc_create, cublasLtMatmulDescCreate);
SAME_CALL(desc_destroy, cublasLtMatmulDescDestroy);
SAME_CALL(desc_set, cublasLtMatmulDescSetAttribute);
SAME_CALL(layout_create, cublasLtMatrixLayoutCreate);
SAME_CALL(layout_destroy, cublasLtMatrixLayoutDestroy);
SAME_CALL(preference_create, cublasLtMatmulPreferenceCreate);
SAME_CALL(preference_destroy, cublasLtMatmulPreferenceDestroy);
SAME_CALL(preference_set, cublasLtMatmulPreferenceSetAttribute);
SAME_CALL(heuristic, cublasLtMatmulAlgoGetHeuristic);
SAME_CALL(matmul, cublasLtMatmul);

TEST(BenchCublasLtAbi, DeclarationsAreTheToolkits) {
  SUCCEED() << "compared while this was compiled";
}
#else
TEST(BenchCublasLtAbi, DeclarationsAreTheToolkits) {
  GTEST_SKIP() << "no cublasLt.h";
}
#endif

TEST(BenchCublasLtAbi, TheToolkitsLibraryHasEveryFunction) {
#ifdef MOETAIL_TOOLKIT_LIBRARIES
  std::shared_ptr<const CublasLt> library;
  try {
    library = std::make_shared<const CublasLt>(MOETAIL_TOOLKIT_LIBRARIES "/libcublasLt.so");
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  EXPECT_GE(std::stoi(library->version()), 12) << library->version();
  const Functions& lt = library->functions();
  MatmulDesc desc = nullptr;
  library->check(lt.desc_create(&desc, ComputeType::f32, DataType::f32), "create");
  const auto yes = Transpose::yes;
  library->check(lt.desc_set(desc, DescAttribute::trans_a, &yes, sizeof yes), "set");
  library->check(lt.desc_destroy(desc), "destroy");
  MatrixLayout layout = nullptr;
  library->check(lt.layout_create(&layout, DataType::bf16, 3584, 896, 3584), "create");
  library->check(lt.layout_destroy(layout), "destroy");
  Preference preference = nullptr;
  library->check(lt.preference_create(&preference), "create");
  const std::size_t most = 1 << 20;
  library->check(lt.preference_set(preference, PreferenceAttribute::max_workspace_bytes, &most, sizeof most),
                 "set");
  library->check(lt.preference_destroy(preference), "destroy");
#else
  GTEST_SKIP() << "no CUDA toolkit when this was configured";
#endif
}

}  // namespace
}  // namespace moetail::bench::blaslt
