// SPDX-License-Identifier: Apache-2.0
// Which kernels a call of the rig launches, and their compiling.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "engine/cuda/info.hpp"
#include "engine/cuda/planned.hpp"
#include "tests/gpu/rig.hpp"

namespace moetail::gpu {

cuda::KernelRequest Gpu::request_of(const kernels::KernelPlan& plan,
                                    const std::vector<std::string>& defines) const {
  cuda::KernelRequest request = cuda::request_of(plan, cuda::limits_of(context->facts()));
  auto extras = extra_defines;
  extras.insert(extras.end(), defines.begin(), defines.end());
  for (const auto& extra : extras) {
    const auto name = extra.substr(0, extra.find('=') + 1);
    std::erase_if(request.spec.defines,
                  [&](const std::string& define) { return define.rfind(name, 0) == 0; });
    request.spec.defines.push_back(extra);
  }
  request.spec.options = options;
  // Experiments may take what the engine would refuse.
  request.budget = {};
  request.budget.max_spill_bytes = 1 << 20;
  return request;
}

void Gpu::warm_up(const std::vector<cuda::KernelRequest>& requests) const {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr
      failed;  // thrown on as it is: a kernel that does not compile is no case's expected failure
  const auto work = [&] {
    for (std::size_t i = next++; i < requests.size(); i = next++) try {
        store->warm_up(requests[i]);
      } catch (...) {
        const std::lock_guard lock(mutex);
        failed = std::current_exception();
      }
  };
  std::vector<std::thread> threads;
  const std::size_t most = std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
  for (std::size_t i = 0; i < std::min(most, requests.size()); ++i) threads.emplace_back(work);
  for (auto& thread : threads) thread.join();
  if (failed) std::rethrow_exception(failed);
}

kernels::PlanRequest Rig::plan_request(const Call& call, kernels::Kind kind) const {
  kernels::PlanRequest request;
  request.shape = shape_;
  if (call.eps) request.shape.eps = *call.eps;
  request.kind = kind;
  request.batch = call.batch;
  request.mode = call.mode;
  // What a tail does not read is not part of its kernel.
  const bool reads_rows = kind == kernels::Kind::publish || kind == kernels::Kind::fill ||
                          (kind == kernels::Kind::front && call.mode != Mode::front_poll);
  request.form = reads_rows ? call.form : Form::published;
  request.weights = reads_rows ? call.weights : WeightType::bf16;
  request.pushes = (kind == kernels::Kind::publish && call.pushes) ||
                   (kind == kernels::Kind::front && call.mode == Mode::twoshot);
  request.residual = call.residual;
  request.shares_reduced = call.shares_reduced;
  request.polls_shared = call.mode == Mode::front_poll;
  request.put = call.put;
  request.launch_ranks = world_ == World::loopback ? shape_.ranks : 1;
  request.choice = call.choice;
  if (kind == kernels::Kind::take) {
    // The same kernel for every mode.
    request.mode = Mode::front;
    request.shares_reduced = request.polls_shared = request.residual = false;
  }
  return request;
}

std::vector<kernels::Kind> Rig::kinds_of(const Call& call) {
  using kernels::Kind;
  if (call.mode == Mode::front) return {Kind::front};
  if (call.mode == Mode::front_poll) return {Kind::fill, Kind::front};
  if (call.one_launch) return {Kind::front};
  if (!call.publishes) return {Kind::push, Kind::wave};
  if (call.pushes) return {Kind::publish, Kind::wave};
  return {Kind::push, Kind::publish, Kind::wave};
}

std::vector<cuda::KernelRequest> Rig::kernels_of(const Call& call) const {
  std::vector<cuda::KernelRequest> requests;
  auto kinds = kinds_of(call);
  if (world_ != World::replay) kinds.push_back(kernels::Kind::take);
  for (const auto kind : kinds)
    requests.push_back(gpu_.request_of(kernels::make_plan(plan_request(call, kind), gpu_.shape), defines));
  return requests;
}

void Rig::warm_up(const std::vector<Call>& calls) const {
  std::vector<cuda::KernelRequest> requests;
  std::set<std::string> known;
  for (const auto& call : calls)
    for (auto& request : kernels_of(call)) {
      auto key = request.spec.entry;
      for (const auto& define : request.spec.defines) key += define + ' ';
      if (known.insert(key).second) requests.push_back(std::move(request));
    }
  gpu_.warm_up(requests);
}

}  // namespace moetail::gpu
