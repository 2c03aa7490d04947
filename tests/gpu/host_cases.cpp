// SPDX-License-Identifier: Apache-2.0
// The host side on a real driver: facts and residency, graphs and events, mapped memory, and nothing left behind.

#include "base/error.hpp"
#include "engine/cuda/info.hpp"
#include "tests/gpu/rig.hpp"

namespace moetail::gpu {
namespace {

constexpr const char* kAddSource = R"(
extern "C" __global__ void host_case_add(unsigned* word, unsigned value) {
  atomicAdd_system(word, value);
})";

cuda::KernelRequest add_request(const Gpu& gpu) {
  cuda::KernelRequest request;
  request.spec = {"host_case_add", kAddSource, {}, gpu.context->facts().arch(), {}};
  request.launch.threads = 1;
  return request;
}

void facts(const Gpu&) {
  const auto info = cuda::cuda_info();
  require(info.support.usable && info.device.has_value(), "{}", info.support.reason);
  require(info.device->num_sms > 0 && info.device->capability() >= 90, "{} SMs, architecture {}",
          info.device->num_sms, info.device->capability());
  for (const auto& fit : info.clusters) {
    fmt::print("  clusters of {:2}, {:6} bytes: {:3} resident\n", fit.cluster, fit.shared_bytes,
               fit.resident);
    require(fit.cluster > 8 || fit.resident > 0, "no cluster of {} fits", fit.cluster);
  }
  // 03-kernels' figure: an H200 holds seven clusters of 16 at one block an SM.
  if (info.device->name.find("H200") != std::string::npos)
    require(info.clusters.back().resident == 7, "{} clusters of 16, 7 were measured",
            info.clusters.back().resident);
}

void graph(const Gpu& gpu) {
  const cuda::MappedHostMemory word(gpu.context, 4);
  const cuda::Stream stream(gpu.context);
  const cuda::Stream side(gpu.context);
  auto request = add_request(gpu);
  gpu.store->warm_up(request);
  const auto kernel = gpu.store->get(request, stream);
  const auto add = [&](const cuda::Stream& on, unsigned value) {
    kernel->launch_with(request.launch, on, word.device<unsigned>(), value);
  };
  stream.begin_capture();
  require(stream.is_capturing(), "a capture that does not capture");
  add(stream, 1);
  side.join(stream);
  add(side, 10);
  stream.join(side);
  auto cold = request;
  cold.spec.defines = {"COLD=1"};
  bool refused = false;
  try {
    gpu.store->get(cold, stream);
  } catch (const Error& error) {
    refused = error.code() == Code::call_order;
  }
  const auto captured = stream.end_capture();
  require(refused, "a missing kernel was compiled under capture");
  require(captured.num_nodes() == 2, "{} nodes, 2 launches were captured", captured.num_nodes());
  require(*word.host<unsigned>() == 0, "a capture ran what it captured");
  const cuda::GraphExec exec(captured);
  exec.upload(stream);
  const cuda::Event begin(gpu.context, cuda::Event::Timing::on);
  const cuda::Event end(gpu.context, cuda::Event::Timing::on);
  stream.record(begin);
  for (int i = 0; i < 7; ++i) exec.launch(stream);
  stream.record(end);
  stream.synchronize();
  require(*word.host<unsigned>() == 77, "7 replays of 11 are {}", *word.host<unsigned>());
  require(cuda::elapsed_us(begin, end, *gpu.context) > 0, "no time passed");
}

void dependent_and_cooperative(const Gpu& gpu) {
  const cuda::MappedHostMemory word(gpu.context, 4);
  auto request = add_request(gpu);
  const auto kernel = gpu.store->get(request, *gpu.stream);
  auto launch = request.launch;
  launch.dependent = true;
  for (int i = 0; i < 100; ++i) kernel->launch_with(launch, *gpu.stream, word.device<unsigned>(), 1u);
  launch = request.launch;
  launch.cooperative = true;
  launch.grid = launch.cluster = 4;
  kernel->launch_with(launch, *gpu.stream, word.device<unsigned>(), 1u);
  gpu.stream->synchronize();
  require(*word.host<unsigned>() == 104, "{} of 104 blocks ran", *word.host<unsigned>());
  launch.grid = 1 << 20;
  bool refused = false;
  try {
    kernel->launch_with(launch, *gpu.stream, word.device<unsigned>(), 1u);
  } catch (const Error& error) {
    refused = error.code() == Code::resource;
  }
  require(refused, "a cooperative launch of {} blocks was not refused", launch.grid);
}

void nothing_is_left(const Gpu& gpu) {
  const auto layout = protocol::make_layout(Shape{});
  const auto once = [&] {
    const cuda::Stream stream(gpu.context);
    cuda::BoxMemory box(gpu.context, layout);
    box.arm(stream);
    stream.synchronize();
    require(!box.fault().has_value() && !box.is_stopped(), "a new box with a fault");
  };
  once();  // what the driver keeps for itself
  const std::size_t before = gpu.free_bytes();
  for (int i = 0; i < 200; ++i) once();
  const std::size_t after = gpu.free_bytes();
  require(after >= before, "200 boxes made and destroyed: {} bytes of device memory are gone",
          before - after);
}

void arm(const Gpu& gpu) {
  Shape shape;
  shape.capacity = 4;
  shape.poll_capacity = 2;
  const auto layout = protocol::make_layout(shape);
  cuda::BoxMemory box(gpu.context, layout);
  box.arm(*gpu.stream);
  std::vector<protocol::u32> words(layout.total_bytes / 4);
  gpu.stream->copy(words.data(), reinterpret_cast<cuda::abi::DevicePtr>(box.device()), layout.total_bytes);
  gpu.stream->synchronize();
  const auto control = layout.offset[static_cast<int>(protocol::Region::control)] / 4;
  for (std::size_t i = 0; i < words.size(); ++i)
    require(words[i] == (i < control ? 0xFFFFFFFFu : 0u), "word {} is {:#x}", i, words[i]);
}

}  // namespace

std::vector<Case> host_cases() {
  return {{"host.facts", facts},
          {"host.graph", graph},
          {"host.dependent_and_cooperative", dependent_and_cooperative},
          {"host.arm", arm},
          {"host.nothing_is_left", nothing_is_left}};
}

}  // namespace moetail::gpu
