// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/kernel_store.hpp"

#include <utility>

#include "base/error.hpp"

namespace moetail::cuda {
namespace {

constexpr int kWholeCarveout = 100;
constexpr unsigned kLargestPortableCluster = 8;

std::string key_of(const KernelRequest& request) {
  std::string key =
      fmt::format("{}\n{}\n{}\n{} {} {} {} {} {}\n", request.spec.entry, request.spec.arch,
                  request.spec.source, request.launch.grid, request.launch.cluster, request.launch.threads,
                  request.launch.shared_bytes, request.launch.dependent, request.launch.cooperative);
  for (const auto& list : {request.spec.defines, request.spec.options})
    for (const std::string& text : list) key += fmt::format("{} {}\n", text.size(), text);
  return key;
}

}  // namespace

KernelStore::KernelStore(ContextRef context, std::shared_ptr<KernelCache> cache)
    : context_(std::move(context)), cache_(std::move(cache)) {}

std::shared_ptr<const Kernel> KernelStore::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = loaded_.find(key);
  return found != loaded_.end() ? found->second : nullptr;
}

std::shared_ptr<const Kernel> KernelStore::get(const KernelRequest& request, const Stream& stream) {
  const std::string key = key_of(request);
  if (auto kernel = find(key)) return kernel;
  // Loading a module is no work of a stream, and what a capture does not see a replay does not repeat.
  if (stream.is_capturing())
    base::fail(Code::call_order,
               "kernel {} ({}) is not loaded, and the stream is capturing: accepted is a warm-up of this "
               "batch and mode before "
               "the capture",
               request.spec.entry, request.spec.arch);
  return load(request, key).first;
}

KernelCache::Origin KernelStore::warm_up(const KernelRequest& request) {
  const std::string key = key_of(request);
  if (find(key)) return KernelCache::Origin::memory;
  return load(request, key).second;
}

std::pair<std::shared_ptr<const Kernel>, KernelCache::Origin> KernelStore::load(const KernelRequest& request,
                                                                                const std::string& key) {
  const auto [compiled, origin] = cache_->get(request.spec);
  const auto violations =
      budget_violations(compiled->usage, request.launch, request.budget, limits_of(context_->facts()));
  if (!violations.empty()) throw Error(Code::unsupported, joined_violations(violations));
  auto kernel = std::make_shared<Kernel>(context_, compiled->cubin, request.spec.entry);
  kernel->allow_dynamic_shared(request.launch.shared_bytes);
  kernel->prefer_shared_carveout(kWholeCarveout);
  if (request.launch.cluster > kLargestPortableCluster) kernel->allow_large_clusters();
  if (request.budget.min_resident_clusters > 0) {
    const int resident = kernel->max_resident_clusters(request.launch);
    if (const auto violation = residency_violation(request.spec.entry, request.launch, resident,
                                                   request.budget.min_resident_clusters))
      throw Error(Code::unsupported, *violation);
  }
  // Two threads may have loaded it; the first one's stays, so that every caller has the same.
  const std::lock_guard lock(mutex_);
  return {loaded_.emplace(key, std::move(kernel)).first->second, origin};
}

}  // namespace moetail::cuda
