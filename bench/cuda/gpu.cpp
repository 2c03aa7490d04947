// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda/gpu.hpp"

#include <algorithm>

#include "base/error.hpp"

// The kernels' texts, so that the program needs no file beside it. Each ends with a zero.
asm(R"(
.pushsection .rodata
.global moetail_probe_kernels
moetail_probe_kernels:
.incbin ")" MOETAIL_BENCH_CUDA R"(/probes.cu"
.byte 0
.global moetail_unfused_kernels
moetail_unfused_kernels:
.incbin ")" MOETAIL_BENCH_CUDA R"(/unfused.cu"
.byte 0
.popsection
)");
extern "C" const char moetail_probe_kernels[], moetail_unfused_kernels[];

namespace moetail::bench {
namespace {

cuda::Graph captured(const cuda::Stream& stream, const std::function<void()>& enqueue) {
  stream.begin_capture();
  try {
    enqueue();
  } catch (...) {
    // The stream must not stay in capture: the error that comes out is the first one.
    try {
      stream.end_capture();
    } catch (const Error&) {
    }
    throw;
  }
  return stream.end_capture();
}

}  // namespace

const char* const kProbeKernels = moetail_probe_kernels;
const char* const kUnfusedKernels = moetail_unfused_kernels;

Gpu::Gpu()
    : context_(cuda::Context::retain()),
      store_(std::make_unique<cuda::KernelStore>(context_, std::make_shared<cuda::KernelCache>())),
      stream_(std::make_unique<cuda::Stream>(context_)) {}

GpuKernel Gpu::kernel(const char* source, const char* entry, const cuda::Launch& launch,
                      const std::vector<std::string>& defines) const {
  cuda::KernelRequest request;
  request.spec.entry = entry;
  request.spec.source = source;
  request.spec.defines = defines;
  request.spec.arch = facts().arch();
  request.launch = launch;
  return {store_->get(request, *stream_), launch};
}

void Gpu::upload(const cuda::DeviceMemory& to, std::size_t offset, const void* from,
                 std::size_t bytes) const {
  stream_->copy(to.address() + offset, from, bytes);
  stream_->synchronize();
}

void Gpu::download(void* to, const void* from, std::size_t bytes) const {
  stream_->copy(to, from, bytes);
  stream_->synchronize();
}

TimedGraph::TimedGraph(const Gpu& gpu, const std::function<void()>& enqueue)
    : gpu_(gpu),
      graph_(captured(gpu.stream(), enqueue)),
      exec_(graph_),
      begin_(gpu.context(), cuda::Event::Timing::on),
      end_(gpu.context(), cuda::Event::Timing::on) {
  exec_.upload(gpu.stream());
  gpu.stream().synchronize();
}

double TimedGraph::replay() const {
  const cuda::Stream& stream = gpu_.stream();
  stream.record(begin_);
  exec_.launch(stream);
  stream.record(end_);
  stream.synchronize();
  return cuda::elapsed_us(begin_, end_, *gpu_.context());
}

double TimedGraph::least_us(int count, double busy_us) const {
  replay();
  double least = 0, total = 0;
  for (int i = 0; i < count || total < busy_us; ++i) {
    const double us = replay();
    least = i == 0 ? us : std::min(least, us);
    // Whatever the clock says: a replay is never free.
    total += std::max(us, 1.0);
  }
  return least;
}

}  // namespace moetail::bench
