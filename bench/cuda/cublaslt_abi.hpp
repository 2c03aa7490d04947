// SPDX-License-Identifier: Apache-2.0
// As much of cuBLASLt's C interface as the benchmark's baseline calls, declared by ourselves: nothing of CUDA is needed to build.
// tests/bench_cublaslt_abi_test.cpp compares it with cublasLt.h where there is one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moetail::bench::blaslt {

enum class Status : int { success = 0, not_supported = 15 };
enum class ComputeType : int { f32 = 68 };         // CUBLAS_COMPUTE_32F
enum class DataType : int { f32 = 0, bf16 = 14 };  // CUDA_R_32F, CUDA_R_16BF
enum class Transpose : int { no = 0, yes = 1 };    // CUBLAS_OP_N, CUBLAS_OP_T
enum class DescAttribute : int { trans_a = 3, trans_b = 4 };
enum class PreferenceAttribute : int { max_workspace_bytes = 1 };

using Handle = void*;
using MatmulDesc = void*;
using MatrixLayout = void*;
using Preference = void*;
using Stream = void*;

struct Algo {
  std::uint64_t data[8];
};

struct HeuristicResult {
  Algo algo;
  std::size_t workspace_bytes;
  Status state;
  float waves;
  int reserved[4];
};

struct Functions {
  Status (*create)(Handle*);
  Status (*destroy)(Handle);
  std::size_t (*version)();
  Status (*desc_create)(MatmulDesc*, ComputeType, DataType scale);
  Status (*desc_destroy)(MatmulDesc);
  Status (*desc_set)(MatmulDesc, DescAttribute, const void* value, std::size_t bytes);
  Status (*layout_create)(MatrixLayout*, DataType, std::uint64_t rows, std::uint64_t columns,
                          std::int64_t leading);
  Status (*layout_destroy)(MatrixLayout);
  Status (*preference_create)(Preference*);
  Status (*preference_destroy)(Preference);
  Status (*preference_set)(Preference, PreferenceAttribute, const void* value, std::size_t bytes);
  Status (*heuristic)(Handle, MatmulDesc, MatrixLayout a, MatrixLayout b, MatrixLayout c, MatrixLayout d,
                      Preference, int requested, HeuristicResult*, int* returned);
  Status (*matmul)(Handle, MatmulDesc, const void* alpha, const void* a, MatrixLayout, const void* b,
                   MatrixLayout, const void* beta, const void* c, MatrixLayout, void* d, MatrixLayout,
                   const Algo*, void* workspace, std::size_t workspace_bytes, Stream);
};

}  // namespace moetail::bench::blaslt
