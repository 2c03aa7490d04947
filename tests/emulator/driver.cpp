// SPDX-License-Identifier: Apache-2.0
// The CUDA driver's functions that name the emulated GPU, load kernels and launch them.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tests/emulator/image.hpp"
#include "tests/emulator/streams.hpp"
#include "tests/h200_attributes.hpp"

using namespace moetail::cuda::abi;
using namespace moetail::emulator;

#define EXPORT __attribute__((visibility("default")))

struct CUmod_st {
  void* library = nullptr;  ///< null: of PTX text
  std::string ptx;
};

namespace {

thread_local std::vector<Context> contexts;
char primary;  // its address is the primary context

/// Blocks of one SM, by threads and shared memory.
unsigned blocks_of_sm(unsigned threads, std::size_t dynamic_bytes) {
  const auto by_memory =
      static_cast<unsigned>((std::size_t{228} << 10) / (dynamic_bytes + (std::size_t{1} << 10)));
  return std::min(2048 / threads, by_memory);
}

}  // namespace

extern "C" {

EXPORT Result cuGetErrorName(Result error, const char** name) {
  *name = error == Result::launch_failed ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR_OF_THE_EMULATOR";
  return Result::success;
}
EXPORT Result cuGetErrorString(Result error, const char** text) {
  *text = error == Result::launch_failed ? "the emulated GPU wrote why to stderr"
                                         : "an error of the emulated GPU";
  return Result::success;
}
EXPORT Result cuInit(unsigned) {
  return Result::success;
}
EXPORT Result cuDriverGetVersion(int* version) {
  *version = 13000;
  return Result::success;
}
EXPORT Result cuDeviceGetCount(int* count) {
  *count = 1;
  return Result::success;
}
EXPORT Result cuDeviceGet(Device* device, int ordinal) {
  *device = ordinal;
  return Result::success;
}
EXPORT Result cuDeviceGetName(char* name, int size, Device) {
  std::snprintf(name, static_cast<std::size_t>(size), "emulated GPU");
  return Result::success;
}
EXPORT Result cuDeviceGetUuid_v2(Uuid* uuid, Device) {
  std::memset(uuid->bytes, 0x5A, sizeof uuid->bytes);
  return Result::success;
}
EXPORT Result cuDeviceGetAttribute(int* value, DeviceAttribute which, Device) {
  *value = moetail::testing::h200_attribute(which);
  return Result::success;
}
EXPORT Result cuDeviceTotalMem_v2(std::size_t* bytes, Device) {
  *bytes = std::size_t{4} << 30;
  return Result::success;
}
EXPORT Result cuDevicePrimaryCtxRetain(Context* context, Device) {
  *context = reinterpret_cast<Context>(&primary);
  return Result::success;
}
EXPORT Result cuDevicePrimaryCtxRelease_v2(Device) {
  return Result::success;
}
EXPORT Result cuCtxGetCurrent(Context* context) {
  *context = contexts.empty() ? nullptr : contexts.back();
  return Result::success;
}
EXPORT Result cuCtxPushCurrent_v2(Context context) {
  contexts.push_back(context);
  return Result::success;
}
EXPORT Result cuCtxPopCurrent_v2(Context* context) {
  *context = contexts.back();
  contexts.pop_back();
  return Result::success;
}
EXPORT Result cuCtxSynchronize() {
  std::unique_lock lock(machine().mutex);
  return wait_for_all(lock);
}

// An image of this compiler's; or PTX, of which a kernel that does nothing is all that runs here.
EXPORT Result cuModuleLoadData(Module* module, const void* image) {
  const auto* head = static_cast<const Image*>(image);
  if (std::strncmp(head->magic, kImageMagic, sizeof head->magic) != 0) {
    *module = new CUmod_st{nullptr, static_cast<const char*>(image)};
    return Result::success;
  }
  std::string path = std::filesystem::temp_directory_path() / "moetail-emulated-XXXXXX";
  const int file = mkstemp(path.data());
  if (file < 0) return Result::out_of_memory;
  const bool whole = write(file, head + 1, head->bytes) == static_cast<ssize_t>(head->bytes);
  close(file);
  void* const library = whole ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (library == nullptr)
    std::fprintf(stderr, "emulated GPU: %s\n", whole ? dlerror() : "an image could not be written");
  unlink(path.c_str());
  if (library == nullptr) return Result::invalid_image;
  *module = new CUmod_st{library, {}};
  return Result::success;
}
EXPORT Result cuModuleUnload(Module module) {
  return done([&] {
    if (module->library != nullptr) dlclose(module->library);
    delete module;
  });
}
EXPORT Result cuModuleGetFunction(Function* function, Module module, const char* name) {
  static constexpr Entry kNothing{0, nullptr, [](void* const*) {}};
  const bool is_empty =
      module->ptx.find(std::string(".entry ") + name + "()\n{\n  ret;\n}") != std::string::npos;
  const auto* entry = module->library == nullptr
                          ? (is_empty ? &kNothing : nullptr)
                          : static_cast<const Entry*>(
                                dlsym(module->library, (std::string("moetail_emulated_") + name).c_str()));
  if (entry == nullptr) return Result::not_found;
  *function =
      new CUfunc_st{name, entry};  // as in CUDA it is the module's; a few bytes that nothing gives back here
  return Result::success;
}
EXPORT Result cuFuncGetAttribute(int* value, FunctionAttribute which, Function) {
  switch (which) {
    case FunctionAttribute::max_threads_per_block: *value = 1024; break;
    case FunctionAttribute::num_registers: *value = 64; break;
    case FunctionAttribute::binary_version: *value = 90; break;
    default: *value = 0;
  }
  return Result::success;
}
EXPORT Result cuFuncSetAttribute(Function, FunctionAttribute, int) {
  return Result::success;
}
EXPORT Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function, int threads,
                                                          std::size_t bytes) {
  *blocks = static_cast<int>(blocks_of_sm(static_cast<unsigned>(threads), bytes));
  return Result::success;
}
// An H200's, as measured: clusters of 16 come 7, 14 or 21 at a time.
EXPORT Result cuOccupancyMaxActiveClusters(int* clusters, Function, const LaunchConfig* config) {
  unsigned size = 1;
  for (unsigned i = 0; i < config->num_attributes; ++i)
    if (config->attributes[i].id == LaunchAttributeId::cluster_dimension)
      size = config->attributes[i].value.cluster.x;
  const unsigned places = std::min(3u, blocks_of_sm(config->block_x, config->shared_bytes));
  *clusters = static_cast<int>(7 * (16 / size) * places);
  return Result::success;
}

EXPORT Result cuLaunchKernelEx(const LaunchConfig* config, Function function, void** parameters, void**) {
  Kernel kernel{function, {config->grid_x, config->block_x, 1, config->shared_bytes}, {}, false};
  for (unsigned i = 0; i < config->num_attributes; ++i) {
    const LaunchAttribute& attribute = config->attributes[i];
    if (attribute.id == LaunchAttributeId::cluster_dimension)
      kernel.shape.cluster = attribute.value.cluster.x;
    if (attribute.id == LaunchAttributeId::programmatic_stream_serialization)
      kernel.dependent = attribute.value.programmatic_stream_serialization != 0;
  }
  for (unsigned i = 0; i < function->entry->num_parameters; ++i) {
    const auto* bytes = static_cast<const std::byte*>(parameters[i]);
    kernel.parameters.emplace_back(bytes, bytes + function->entry->sizes[i]);
  }
  auto operation = std::make_unique<Operation>();
  operation->kernel = std::move(kernel);
  return done([&] { enqueue(config->stream, std::move(operation)); });
}
EXPORT Result cuLaunchHostFunc(Stream stream, HostFunction function, void* data) {
  auto operation = std::make_unique<Operation>();
  operation->host = [function, data] { function(data); };
  return done([&] { enqueue(stream, std::move(operation)); });
}

}  // extern "C"
