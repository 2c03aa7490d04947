// SPDX-License-Identifier: Apache-2.0
// One planted error for each tool of compute-sanitizer: `make gpu-sanitize` trusts a tool that finds nothing in our kernels only after it has
// found this. Run by their full names alone; without the tool they pass, but for the one that writes where nothing is.
#include "tests/gpu/rig.hpp"

namespace moetail::gpu {
namespace {

constexpr unsigned kThreads = 64;
constexpr const char* kSource = R"(
extern "C" __global__ void planted_memcheck(unsigned* to, const unsigned*) {
  to[64 + threadIdx.x] = threadIdx.x;  // 64 words are there
}
extern "C" __global__ void planted_racecheck(unsigned* to, const unsigned*) {
  __shared__ unsigned words[64];
  words[threadIdx.x] = threadIdx.x;
  to[threadIdx.x] = words[63 - threadIdx.x];  // another warp's, with no barrier between
}
extern "C" __global__ void planted_synccheck(unsigned* to, const unsigned*) {
  to[threadIdx.x] = threadIdx.x;
  if (threadIdx.x % 32 <= 16) __syncwarp(0x0000FFFF);  // lane 16 is not of the mask
}
extern "C" __global__ void planted_initcheck(unsigned* to, const unsigned* from) {
  to[threadIdx.x] = from[threadIdx.x];  // which nobody has written
}
)";

void plant(const Gpu& gpu, const char* entry) {
  const cuda::DeviceMemory to(gpu.context, kThreads * 4), from(gpu.context, kThreads * 4);
  gpu.stream->fill(to.address(), 0, kThreads);
  cuda::KernelRequest request;
  request.spec = {entry, kSource, {}, gpu.context->facts().arch(), {}};
  request.launch.threads = kThreads;
  gpu.store->get(request, *gpu.stream)
      ->launch_with(request.launch, *gpu.stream, to.as<unsigned>(), from.as<const unsigned>());
  gpu.stream->synchronize();
}

}  // namespace

std::vector<Case> planted_cases() {
  return {{"planted.memcheck", [](const Gpu& gpu) { plant(gpu, "planted_memcheck"); }},
          {"planted.racecheck", [](const Gpu& gpu) { plant(gpu, "planted_racecheck"); }},
          {"planted.synccheck", [](const Gpu& gpu) { plant(gpu, "planted_synccheck"); }},
          {"planted.initcheck", [](const Gpu& gpu) { plant(gpu, "planted_initcheck"); }}};
}

}  // namespace moetail::gpu
