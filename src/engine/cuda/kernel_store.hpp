// SPDX-License-Identifier: Apache-2.0
// The kernels of one context: compiled, checked against their budgets, loaded, and ready to launch.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "engine/cuda/budget.hpp"
#include "engine/cuda/kernel.hpp"
#include "engine/cuda/kernel_cache.hpp"

namespace moetail::cuda {

/// A kernel to launch in one way: what to compile, the geometry and what it may use.
struct KernelRequest {
  KernelSpec spec;
  Launch launch;
  Budget budget;
};

/// Safe to use from any thread. Kernels stay loaded until the store goes, because graphs refer to them.
class KernelStore {
 public:
  KernelStore(ContextRef context, std::shared_ptr<KernelCache> cache);

  /// The loaded kernel, with its dynamic shared memory, its carve-out of 100 % and large clusters allowed as the launch needs.
  /// The first time it is compiled if need be, loaded, and its budget checked: Code::unsupported with what to change. While
  /// `stream` is capturing a kernel that is not loaded yet is Code::call_order: warm up first.
  std::shared_ptr<const Kernel> get(const KernelRequest& request, const Stream& stream);
  /// The same ahead of time; returns where it came from (memory: it was loaded already).
  KernelCache::Origin warm_up(const KernelRequest& request);

  const ContextRef& context() const { return context_; }
  KernelCache& cache() const { return *cache_; }

 private:
  std::shared_ptr<const Kernel> find(const std::string& key);
  std::pair<std::shared_ptr<const Kernel>, KernelCache::Origin> load(const KernelRequest& request,
                                                                     const std::string& key);

  ContextRef context_;
  std::shared_ptr<KernelCache> cache_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Kernel>> loaded_;  // by spec and geometry
};

}  // namespace moetail::cuda
