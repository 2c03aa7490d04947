// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/info.hpp"

#include <cstring>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/error.hpp"
#include "base/own_files.hpp"
#include "engine/cuda/kernel.hpp"
#include "engine/cuda/kernel_cache.hpp"

namespace moetail::cuda {
namespace {

// An entry that does nothing, as PTX, which the driver compiles itself: the question needs no NVRTC.
constexpr std::string_view kEmptyKernel = R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry moetail_empty()
{
  ret;
}
)";

Kernel load_empty_kernel(const ContextRef& context) {
  // The terminating zero belongs to the image.
  return {context, std::as_bytes(std::span(kEmptyKernel.data(), kEmptyKernel.size() + 1)), "moetail_empty"};
}

int ask(Kernel& kernel, unsigned cluster, unsigned threads, std::size_t shared_bytes) {
  Launch launch;
  launch.grid = cluster;
  launch.cluster = cluster;
  launch.threads = threads;
  launch.shared_bytes = shared_bytes;
  kernel.allow_dynamic_shared(shared_bytes);
  kernel.prefer_shared_carveout(100);
  if (cluster > 8) kernel.allow_large_clusters();
  return kernel.max_resident_clusters(launch);
}

/// What `find` returns, or why it cannot.
template <typename Find>
std::string text_or_reason(const Find& find) {
  try {
    return find();
  } catch (const std::exception& error) {
    return error.what();
  }
}

CudaInfo gather(int ordinal) {
  CudaInfo info;
  info.support = cuda_support(ordinal);
  info.driver = text_or_reason([] {
    const auto driver = Driver::of_machine();
    return fmt::format("CUDA {}, {}", version_text(driver->version()), driver->library());
  });
  info.nvrtc = text_or_reason([] {
    const auto nvrtc = Nvrtc::of_machine();
    return fmt::format("{}, {}", nvrtc->version(), nvrtc->library());
  });
  const auto folder = kernel_cache_directory();
  info.kernel_cache = folder ? folder->string() : "in memory only";
  if (folder && std::filesystem::exists(std::filesystem::symlink_status(*folder))) {
    const std::string reason = text_or_reason([&] {
      base::check_own_folder(*folder);
      return std::string();
    });
    if (!reason.empty()) info.kernel_cache = "in memory only: " + reason;
  }
  try {
    info.device = device_facts(*Driver::of_machine(), ordinal);
  } catch (const std::exception&) {  // the reason is in support
  }
  if (!info.support.usable || !info.device) return info;
  try {
    const ContextRef context = Context::retain(ordinal);
    Kernel kernel = load_empty_kernel(context);
    constexpr unsigned kThreads = 256;
    // Two blocks an SM, then one: what fits a successor beside it, and what does not.
    for (const std::size_t shared : {std::size_t{60} * 1024, context->facts().shared_bytes_per_block})
      for (const unsigned cluster : {1u, 4u, 8u, 16u})
        info.clusters.push_back({cluster, kThreads, shared, ask(kernel, cluster, kThreads, shared)});
  } catch (const std::exception& error) {
    info.support = {false, error.what()};
  }
  return info;
}

}  // namespace

int resident_clusters(const ContextRef& context, unsigned cluster, unsigned threads,
                      std::size_t shared_bytes) {
  Kernel kernel = load_empty_kernel(context);
  return ask(kernel, cluster, threads, shared_bytes);
}

CudaInfo cuda_info(int ordinal) noexcept {
  try {
    return gather(ordinal);
  } catch (...) {
    return {};  // out of memory: not even the words could be allocated
  }
}

}  // namespace moetail::cuda
