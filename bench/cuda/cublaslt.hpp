// SPDX-License-Identifier: Apache-2.0
// cuBLASLt, found at run time, and the one matrix product that the baseline takes from it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/cuda/cublaslt_abi.hpp"
#include "bench/cuda/gpu.hpp"

namespace moetail::bench {

class CublasLt {
 public:
  /// Loads one library. Throws Code::unsupported with the reason.
  explicit CublasLt(const std::string& library);
  /// The machine's: MOETAIL_CUBLASLT alone where it is set; else libcublasLt.so.13, then .12, from the loader's path and then from lib64
  /// and lib of CUDA_HOME and CUDA_PATH. Throws Code::unsupported with everything that was tried.
  static std::shared_ptr<const CublasLt> of_machine();

  const blaslt::Functions& functions() const { return functions_; }
  /// "13.1.0"
  std::string version() const;
  /// Throws Code::internal, or Code::unsupported where the library says that it cannot.
  void check(blaslt::Status status, const char* call) const;

 private:
  blaslt::Functions functions_{};
  std::string library_;
};

/// out [batch, rows] = x [batch, columns] times the transpose of weights [rows, columns]; all bf16, row-major, sums in fp32.
class ShardGemm {
 public:
  /// Asks the library for its heuristics' algorithms. Throws Code::unsupported where it has none.
  ShardGemm(const Gpu& gpu, std::shared_ptr<const CublasLt> library, int rows, int columns, int batch);
  ~ShardGemm();
  ShardGemm(const ShardGemm&) = delete;
  ShardGemm& operator=(const ShardGemm&) = delete;

  std::size_t num_algorithms() const { return algorithms_.size(); }
  /// The place of the algorithm that `enqueue` takes, in the heuristics' order.
  std::size_t chosen() const { return chosen_; }
  /// Times each algorithm over all of `weights`, a product each and in one graph, so that none of them is in a cache, and chooses the
  /// fastest. Throws Code::unsupported where none of them runs.
  void choose(const std::vector<const Bf16*>& weights, const Bf16* x, Bf16* out);
  /// With the chosen algorithm, in order on the Gpu's stream, which may be capturing.
  void enqueue(const Bf16* weights, const Bf16* x, Bf16* out) const;

 private:
  const Gpu& gpu_;
  std::shared_ptr<const CublasLt> library_;
  blaslt::Handle handle_ = nullptr;
  blaslt::MatmulDesc desc_ = nullptr;
  blaslt::MatrixLayout weights_ = nullptr, x_ = nullptr, out_ = nullptr;
  std::vector<blaslt::HeuristicResult> algorithms_;
  cuda::DeviceMemory workspace_;
  std::size_t chosen_ = 0;

  blaslt::Status run(const blaslt::HeuristicResult& algorithm, const Bf16* weights, const Bf16* x,
                     Bf16* out) const;
  void destroy() noexcept;
};

}  // namespace moetail::bench
