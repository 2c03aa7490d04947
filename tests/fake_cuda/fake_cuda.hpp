// SPDX-License-Identifier: Apache-2.0
// A CUDA driver for tests: a shared library with the driver's functions over ordinary memory, in which everything runs at once and
// is counted. Its device is what FakeDevice says; any function can be made to fail.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "engine/cuda/driver_abi.hpp"

namespace moetail::testing {

/// One launch, as the driver was given it.
struct FakeLaunch {
  cuda::abi::LaunchConfig config = {};
  std::vector<cuda::abi::LaunchAttribute> attributes;
  std::vector<const void*> parameters;  ///< pointers; dead after the launch
  int first_parameter = 0;              ///< the value behind the first one
};

struct FakeDevice {
  int version = 13000;
  int num_devices = 1;
  int major = 9, minor = 0;
  bool has_clusters = true;
  bool maps_host_memory = true;
  int compute_mode = 0;
  int resident_clusters = 7;
  std::size_t memory_bytes = std::size_t{1} << 30;
};

struct FakeState {
  FakeDevice device;
  /// Function (its symbol) -> what it returns instead of doing anything.
  std::map<std::string, cuda::abi::Result> failures;
  /// Kind of thing -> how many of it live.
  std::map<std::string, int> live;
  std::map<std::string, int> calls;
  std::vector<FakeLaunch> launches;
  int num_parameters = 1;  ///< of every kernel
  bool capturing = false;
  std::map<int, int> function_attributes;
  std::map<cuda::abi::DevicePtr, std::size_t> allocations;  ///< of the device: address -> bytes
};

/// The library's one state; C linkage, found by dlsym.
using FakeStateFunction = FakeState* (*)();

}  // namespace moetail::testing
