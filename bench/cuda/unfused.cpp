// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda/unfused.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

namespace moetail::bench {
namespace {

// As unfused.cu has them.
constexpr unsigned kFinalizeThreads = 64, kNormThreads = 256, kAddThreads = 128;
constexpr unsigned kLanesOfALine = 4;
constexpr std::size_t kNormSharedBytes = 128;

struct UnfusedKernels {
  GpuKernel finalize, norm, add;
};

unsigned blocks_for(std::size_t threads, unsigned block) {
  return static_cast<unsigned>((threads + block - 1) / block);
}

std::size_t product_of(int a, int b) {
  return static_cast<std::size_t>(a) * static_cast<std::size_t>(b);
}

UnfusedKernels unfused_kernels(const Gpu& gpu, const UnfusedSpec& spec) {
  const protocol::Shape& shape = spec.shape;
  const std::vector<std::string> defines = {
      fmt::format("UNFUSED_LATENT={}", shape.latent),
      fmt::format("UNFUSED_SHARD={}", shape.shard()),
      fmt::format("UNFUSED_HIDDEN={}", shape.hidden),
      fmt::format("UNFUSED_TOP_K={}", shape.top_k),
      fmt::format("UNFUSED_EPS={:a}f", shape.eps),
      fmt::format("UNFUSED_WEIGHTS_FP32={}", spec.weight_type == WeightType::fp32 ? "true" : "false"),
      fmt::format("UNFUSED_RESIDUAL={}", spec.residual != nullptr ? "true" : "false")};
  const auto get = [&](const char* entry, unsigned threads, unsigned blocks, std::size_t shared_bytes) {
    cuda::Launch launch;
    launch.grid = blocks;
    launch.threads = threads;
    launch.shared_bytes = shared_bytes;
    return gpu.kernel(kUnfusedKernels, entry, launch, defines);
  };
  const std::size_t latent_lines = product_of(spec.batch, shape.latent / protocol::kLineColumns);
  const std::size_t shard_lines = product_of(spec.batch, shape.shard() / protocol::kLineColumns);
  return {get("moetail_unfused_finalize", kFinalizeThreads,
              blocks_for(kLanesOfALine * latent_lines, kFinalizeThreads), 0),
          get("moetail_unfused_norm", kNormThreads, static_cast<unsigned>(spec.batch), kNormSharedBytes),
          get("moetail_unfused_add", kAddThreads, blocks_for(shard_lines, kAddThreads), 0)};
}

}  // namespace

UnfusedTail::UnfusedTail(const Gpu& gpu, const UnfusedSpec& spec) : gpu_(gpu), spec_(spec) {
  if (spec.form != Form::expanded && spec.form != Form::partial)
    base::fail(Code::unsupported, "the unfused pipeline starts from rows or from partial, not from {}",
               protocol::form_name(spec.form));
  library_ = CublasLt::of_machine();
  const protocol::Shape& shape = spec.shape;
  const UnfusedKernels kernels = unfused_kernels(gpu, spec);
  finalize_ = kernels.finalize;
  norm_ = kernels.norm;
  add_ = kernels.add;
  const auto rows_of = [&](int columns) {
    return gpu.allocate(product_of(spec.batch, columns) * sizeof(Bf16));
  };
  partial_ = rows_of(shape.latent);
  operand_ = rows_of(shape.latent);
  product_ = rows_of(shape.shard());
  out_ = rows_of(shape.shard());
  gemm_ = std::make_unique<ShardGemm>(gpu, library_, shape.shard(), shape.latent, spec.batch);
  enqueue_operand(0);  // numbers of the right size: a chip at zeros draws less power, and is faster
  gemm_->choose(spec_.shards, operand_.as<Bf16>(), product_.as<Bf16>());
  graph_ = std::make_unique<TimedGraph>(gpu, [this] {
    for (std::size_t layer = 0; layer < spec_.shards.size(); ++layer) enqueue_layer(layer);
  });
}

std::string UnfusedTail::description() const {
  return fmt::format("{}RMSNorm, cuBLASLt {} [{}, {}] x [{}, {}] (algorithm {} of {} that were timed), add",
                     spec_.form == Form::expanded ? "finalize, " : "", library_->version(),
                     spec_.shape.shard(), spec_.shape.latent, spec_.shape.latent, spec_.batch,
                     gemm_->chosen() + 1, gemm_->num_algorithms());
}

void UnfusedTail::enqueue_operand(std::size_t layer) const {
  const Bf16* partial = spec_.rows[layer];
  if (spec_.form == Form::expanded) {
    gpu_.launch(finalize_, spec_.rows[layer], spec_.weights, partial_.as<Bf16>(),
                static_cast<protocol::u32>(spec_.batch));
    partial = partial_.as<Bf16>();
  }
  gpu_.launch(norm_, partial, spec_.norms[layer], operand_.as<Bf16>());
}

void UnfusedTail::enqueue_layer(std::size_t layer) const {
  enqueue_operand(layer);
  gemm_->enqueue(spec_.shards[layer], operand_.as<Bf16>(), product_.as<Bf16>());
  gpu_.launch(add_, product_.as<Bf16>(), spec_.shared, spec_.residual, out_.as<Bf16>(),
              static_cast<protocol::u32>(spec_.batch));
}

std::vector<Bf16> UnfusedTail::run_layer(int layer) const {
  enqueue_layer(static_cast<std::size_t>(layer));
  return last_rows();
}

std::vector<Bf16> UnfusedTail::last_rows() const {
  std::vector<Bf16> rows(product_of(spec_.batch, spec_.shape.shard()));
  gpu_.download(rows.data(), out_.as<void>(), rows.size() * sizeof(Bf16));
  return rows;
}

}  // namespace moetail::bench
