// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/context.hpp"

#include <utility>

#include "base/error.hpp"

namespace moetail::cuda {
namespace {

using abi::DeviceAttribute;

constexpr int kComputeModeProhibited = 2;

abi::Device find_device(const Driver& driver, int ordinal) {
  int count = 0;
  driver.check(driver.device_get_count(&count), "cuDeviceGetCount", "");
  if (count == 0) base::fail(Code::unsupported, "the CUDA driver ({}) has no device", driver.library());
  if (ordinal < 0 || ordinal >= count)
    base::bad_argument("device", ordinal, fmt::format("0 to {}", count - 1));
  abi::Device device = 0;
  driver.check(driver.device_get(&device, ordinal), "cuDeviceGet", "device {}", ordinal);
  return device;
}

int attribute(const Driver& driver, abi::Device device, DeviceAttribute which) {
  int value = 0;
  driver.check(driver.device_get_attribute(&value, which, device), "cuDeviceGetAttribute",
               "attribute {}, device {}", static_cast<int>(which), device);
  return value;
}

std::string uuid_text(const abi::Uuid& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i)
    text += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                        static_cast<unsigned char>(uuid.bytes[i]));
  return text;
}

/// What keeps a device that exists from serving, or nothing.
std::string shortcoming(const Driver& driver, int ordinal) {
  const abi::Device device = find_device(driver, ordinal);
  const DeviceFacts facts = device_facts(driver, ordinal);
  const auto says = [&](std::string_view what) {
    return fmt::format("device {}, {}: {}", ordinal, facts.name, what);
  };
  if (facts.capability() < kOldestArchitecture)
    return says(fmt::format("architecture {}.{}: accepted is {}.{} or newer", facts.capability_major,
                            facts.capability_minor, kOldestArchitecture / 10, kOldestArchitecture % 10));
  if (!facts.has_clusters) return says("no cluster launch");
  if (!facts.maps_host_memory) return says("host memory cannot be mapped, and fault records live there");
  if (attribute(driver, device, DeviceAttribute::compute_mode) == kComputeModeProhibited)
    return says("its compute mode prohibits contexts: nvidia-smi -c DEFAULT allows them");
  return {};
}

Support support_of(const std::shared_ptr<const Driver>& driver, int ordinal) {
  std::string reason = shortcoming(*driver, ordinal);
  const bool usable = reason.empty();
  return {usable, std::move(reason)};
}

template <typename Find>
Support support_or_reason(const Find& find, int ordinal) noexcept {
  try {
    try {
      return support_of(find(), ordinal);
    } catch (const std::exception& error) {
      return {false, error.what()};
    }
  } catch (...) {
    return {};  // not even the words could be allocated
  }
}

}  // namespace

Support cuda_support(int ordinal) noexcept {
  return support_or_reason([] { return Driver::of_machine(); }, ordinal);
}
Support cuda_support_of(const std::string& library, int ordinal) noexcept {
  return support_or_reason([&] { return Driver::load(library); }, ordinal);
}

std::string DeviceFacts::arch() const {
  return fmt::format("sm_{}{}a", capability_major, capability_minor);
}

DeviceFacts device_facts(const Driver& driver, int ordinal) {
  const abi::Device device = find_device(driver, ordinal);
  DeviceFacts facts;
  char name[256] = {};
  driver.check(driver.device_get_name(name, sizeof name - 1, device), "cuDeviceGetName", "device {}",
               ordinal);
  facts.name = name;
  abi::Uuid uuid = {};
  driver.check(driver.device_get_uuid(&uuid, device), "cuDeviceGetUuid", "device {}", ordinal);
  facts.uuid = uuid_text(uuid);
  driver.check(driver.device_total_mem(&facts.memory_bytes, device), "cuDeviceTotalMem", "device {}",
               ordinal);
  const auto number = [&](DeviceAttribute which) { return attribute(driver, device, which); };
  const auto bytes = [&](DeviceAttribute which) { return static_cast<std::size_t>(number(which)); };
  facts.capability_major = number(DeviceAttribute::compute_capability_major);
  facts.capability_minor = number(DeviceAttribute::compute_capability_minor);
  facts.num_sms = number(DeviceAttribute::multiprocessor_count);
  facts.warp_size = number(DeviceAttribute::warp_size);
  facts.max_threads_per_block = number(DeviceAttribute::max_threads_per_block);
  facts.max_threads_per_sm = number(DeviceAttribute::max_threads_per_multiprocessor);
  facts.registers_per_sm = number(DeviceAttribute::max_registers_per_multiprocessor);
  facts.l2_bytes = bytes(DeviceAttribute::l2_cache_bytes);
  facts.shared_bytes_per_block = bytes(DeviceAttribute::max_shared_bytes_per_block_optin);
  facts.shared_bytes_per_sm = bytes(DeviceAttribute::max_shared_bytes_per_multiprocessor);
  facts.reserved_shared_bytes_per_block = bytes(DeviceAttribute::reserved_shared_bytes_per_block);
  facts.has_clusters = number(DeviceAttribute::cluster_launch) != 0;
  facts.has_cooperative_launch = number(DeviceAttribute::cooperative_launch) != 0;
  facts.has_multicast = number(DeviceAttribute::multicast_supported) != 0;
  facts.maps_host_memory = number(DeviceAttribute::can_map_host_memory) != 0;
  return facts;
}

std::shared_ptr<const Context> Context::retain(int ordinal) {
  return retain(Driver::of_machine(), ordinal);
}

std::shared_ptr<const Context> Context::retain(std::shared_ptr<const Driver> driver, int ordinal) {
  return std::shared_ptr<const Context>(new Context(std::move(driver), ordinal));
}

Context::Context(std::shared_ptr<const Driver> driver_in, int ordinal)
    : driver_(std::move(driver_in)), facts_(device_facts(*driver_, ordinal)), ordinal_(ordinal) {
  if (const std::string reason = shortcoming(*driver_, ordinal); !reason.empty())
    throw Error(Code::unsupported, reason);
  device_ = find_device(*driver_, ordinal);
  driver_->check(driver_->primary_ctx_retain(&handle_, device_), "cuDevicePrimaryCtxRetain", "device {}",
                 ordinal);
}

Context::~Context() {
  driver_->primary_ctx_release(device_);
}

void Context::synchronize() const {
  const ContextScope scope(*this);
  driver_->check(driver_->ctx_synchronize(), "cuCtxSynchronize", "device {}", ordinal_);
}

ContextScope::ContextScope(const Context& context) : context_(context) {
  const Driver& driver = context.driver();
  abi::Context current = nullptr;
  driver.check(driver.ctx_get_current(&current), "cuCtxGetCurrent", "");
  if (current == context.handle()) return;
  driver.check(driver.ctx_push_current(context.handle()), "cuCtxPushCurrent", "device {}", context.ordinal());
  pushed_ = true;
}

ContextScope::~ContextScope() {
  abi::Context popped = nullptr;
  if (pushed_) context_.driver().ctx_pop_current(&popped);
}

}  // namespace moetail::cuda
