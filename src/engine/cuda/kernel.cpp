// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/kernel.hpp"

#include <utility>

#include "base/error.hpp"

namespace moetail::cuda {
namespace {

std::string geometry_text(const Launch& launch) {
  return fmt::format("{} blocks in clusters of {}, {} threads, {} bytes of dynamic shared memory{}{}",
                     launch.grid, launch.cluster, launch.threads, launch.shared_bytes,
                     launch.dependent ? ", dependent" : "", launch.cooperative ? ", cooperative" : "");
}

void check_launch(const std::string& kernel, const Launch& launch) {
  if (launch.cluster == 0 || launch.cluster > 16)
    base::bad_argument(fmt::format("{}: cluster", kernel), launch.cluster, "1 to 16 blocks");
  if (launch.grid == 0 || launch.grid % launch.cluster != 0)
    base::bad_argument(fmt::format("{}: grid", kernel), launch.grid,
                       fmt::format("a multiple of the cluster's {} blocks", launch.cluster));
  if (launch.threads == 0 || launch.threads > 1024)
    base::bad_argument(fmt::format("{}: threads", kernel), launch.threads, "1 to 1024");
  // Dependent launch would let the kernel start among its predecessor's blocks, where it may not find room for all of its own.
  if (launch.dependent && launch.cooperative)
    base::bad_argument(fmt::format("{}: dependent", kernel), true, "false in a cooperative launch");
}

/// The driver's own description of a launch, which points into itself.
struct Config {
  Config(const Launch& launch, abi::Stream stream) {
    config.grid_x = launch.grid;
    config.grid_y = config.grid_z = 1;
    config.block_x = launch.threads;
    config.block_y = config.block_z = 1;
    config.shared_bytes = static_cast<unsigned>(launch.shared_bytes);
    config.stream = stream;
    config.attributes = attributes.data();
    if (launch.cluster > 1) add(abi::LaunchAttributeId::cluster_dimension).cluster = {launch.cluster, 1, 1};
    if (launch.dependent)
      add(abi::LaunchAttributeId::programmatic_stream_serialization).programmatic_stream_serialization = 1;
    if (launch.cooperative) add(abi::LaunchAttributeId::cooperative).cooperative = 1;
  }
  Config(const Config&) = delete;
  Config& operator=(const Config&) = delete;

  abi::LaunchAttributeValue& add(abi::LaunchAttributeId id) {
    abi::LaunchAttribute& attribute = attributes[config.num_attributes++];
    attribute.id = id;
    return attribute.value;
  }

  std::array<abi::LaunchAttribute, 3> attributes = {};
  abi::LaunchConfig config = {};
};

}  // namespace

class Kernel::Loaded {
 public:
  Loaded(ContextRef context_in, std::span<const std::byte> image, const std::string& name)
      : context(std::move(context_in)) {
    const ContextScope scope(*context);
    const Driver& driver = context->driver();
    driver.check(driver.module_load_data(&handle, image.data()), "cuModuleLoadData",
                 "{}: {} bytes; accepted is an image for {} of a toolkit no newer than the driver's {}", name,
                 image.size(), context->facts().arch(), version_text(driver.version()));
  }
  ~Loaded() {
    try {
      const ContextScope scope(*context);
      context->driver().module_unload(handle);
    } catch (...) {  // the context is lost, and its modules with it
    }
  }
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;

  ContextRef context;
  abi::Module handle = nullptr;
};

Kernel::Kernel(ContextRef context, std::span<const std::byte> image, std::string name)
    : module_(std::make_shared<Loaded>(std::move(context), image, name)), name_(std::move(name)) {
  const ContextScope scope(*module_->context);
  const Driver& driver = module_->context->driver();
  driver.check(driver.module_get_function(&function_, module_->handle, name_.c_str()), "cuModuleGetFunction",
               "entry {}: accepted is an extern \"C\" kernel of the image", name_);
}

const ContextRef& Kernel::context() const {
  return module_->context;
}

KernelFacts Kernel::facts() const {
  const ContextScope scope(*context());
  const Driver& driver = context()->driver();
  const auto number = [&](abi::FunctionAttribute which) {
    int value = 0;
    driver.check(driver.func_get_attribute(&value, which, function_), "cuFuncGetAttribute",
                 "{}: attribute {}", name_, static_cast<int>(which));
    return value;
  };
  KernelFacts facts;
  facts.num_registers = number(abi::FunctionAttribute::num_registers);
  facts.local_bytes = static_cast<std::size_t>(number(abi::FunctionAttribute::local_bytes));
  facts.static_shared_bytes = static_cast<std::size_t>(number(abi::FunctionAttribute::static_shared_bytes));
  facts.max_threads = number(abi::FunctionAttribute::max_threads_per_block);
  facts.binary_version = number(abi::FunctionAttribute::binary_version);
  return facts;
}

void Kernel::set(abi::FunctionAttribute which, int value, const char* what) {
  const ContextScope scope(*context());
  const Driver& driver = context()->driver();
  driver.check(driver.func_set_attribute(function_, which, value), "cuFuncSetAttribute", "{}: {} = {}", name_,
               what, value);
}

void Kernel::allow_dynamic_shared(std::size_t bytes) {
  set(abi::FunctionAttribute::max_dynamic_shared_bytes, static_cast<int>(bytes), "max_dynamic_shared_bytes");
}
void Kernel::prefer_shared_carveout(int percent) {
  set(abi::FunctionAttribute::preferred_shared_carveout, percent, "preferred_shared_carveout");
}
void Kernel::allow_large_clusters() {
  set(abi::FunctionAttribute::non_portable_cluster_size_allowed, 1, "non_portable_cluster_size_allowed");
}

int Kernel::max_resident_clusters(const Launch& launch) const {
  check_launch(name_, launch);
  const ContextScope scope(*context());
  const Driver& driver = context()->driver();
  int resident = 0;
  if (launch.cluster == 1) {
    driver.check(driver.occupancy_max_active_blocks(&resident, function_, static_cast<int>(launch.threads),
                                                    launch.shared_bytes),
                 "cuOccupancyMaxActiveBlocksPerMultiprocessor", "{}: {}", name_, geometry_text(launch));
    return resident * context()->facts().num_sms;
  }
  // How it is ordered in its stream does not change what fits.
  Launch geometry = launch;
  geometry.dependent = geometry.cooperative = false;
  const Config config(geometry, nullptr);
  driver.check(driver.occupancy_max_active_clusters(&resident, function_, &config.config),
               "cuOccupancyMaxActiveClusters", "{}: {}", name_, geometry_text(launch));
  return resident;
}

void Kernel::launch(const Launch& launch, const Stream& stream, std::span<const void* const> args) const {
  check_launch(name_, launch);
  const ContextScope scope(*context());
  const Driver& driver = context()->driver();
  const Config config(launch, stream.handle());
  // The driver reads the parameters and never writes them; its prototype is older than const.
  auto** const parameters = const_cast<void**>(args.data());
  const abi::Result result = driver.launch_kernel_ex(&config.config, function_, parameters, nullptr);
  if (result != abi::Result::success)
    driver.check(result, "cuLaunchKernelEx", "{}: {}", name_, geometry_text(launch));
}

}  // namespace moetail::cuda
