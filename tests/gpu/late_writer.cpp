// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/rig.hpp"

namespace moetail::gpu {
namespace {

constexpr const char* kSource = R"(
extern "C" __global__ void late_writer(unsigned* to, const unsigned* from, unsigned words, unsigned long long ns) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin)::"memory");
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory"); while (now - begin < ns);
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x) to[i] = from[i];
})";

}  // namespace

void launch_late_writer(const Gpu& gpu, const cuda::Stream& stream, void* to, const void* from,
                        std::size_t bytes, u64 ns) {
  cuda::KernelRequest request;
  request.spec = {"late_writer", kSource, {}, gpu.context->facts().arch(), {}};
  request.launch.threads = 512;
  gpu.store->get(request, stream)
      ->launch_with(request.launch, stream, to, from, static_cast<unsigned>(bytes / 4),
                    static_cast<unsigned long long>(ns));
}

}  // namespace moetail::gpu
