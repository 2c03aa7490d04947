// SPDX-License-Identifier: Apache-2.0
// The CUDA driver, found at run time: nothing of moetail links to it, and without it everything but this engine works.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>

#include "engine/cuda/driver_abi.hpp"

namespace moetail::cuda {

/// Which call failed, and from where it was made. Converts from the call's name.
struct CallSite {
  // NOLINTNEXTLINE(google-explicit-constructor): check("cuMemAlloc", ...) is what a caller wants to write
  CallSite(const char* call_in, const char* file_in = __builtin_FILE(), int line_in = __builtin_LINE())
      : call(call_in), file(file_in), line(line_in) {}
  const char* call;
  const char* file;
  int line;
};

/// The driver's functions, as members named after them: `driver.mem_alloc(&pointer, bytes)`. One object a library, shared
/// by all that use it; the library stays loaded until the process ends.
class Driver {
 public:
  /// Loads a library (a soname or a path), looks up every function and calls cuInit. Throws Code::unsupported, with
  /// the reason, when any of that fails or the driver is older than kOldestDriver.
  static std::shared_ptr<const Driver> load(const std::string& library);
  /// The machine's driver: MOETAIL_CUDA_DRIVER or kDriverSoname, loaded once. Throws the same.
  static std::shared_ptr<const Driver> of_machine();

  /// As cuDriverGetVersion says it: 1000 * major + 10 * minor.
  int version() const { return version_; }
  const std::string& library() const { return library_; }

  /// Throws unless `result` is success. The message holds the call, the arguments, who called, and the driver's own name
  /// and text of the error. Out of memory is Code::resource; a fault of a kernel is Code::fault; what this device or
  /// driver cannot do is Code::unsupported; all else is a mistake of ours, Code::internal.
  template <typename... Args>
  void check(abi::Result result, CallSite site, fmt::format_string<Args...> arguments, Args&&... args) const {
    if (result == abi::Result::success) return;
    fail(result, site, fmt::format(arguments, std::forward<Args>(args)...));
  }

  /// "CUDA_ERROR_OUT_OF_MEMORY (out of memory)".
  std::string result_text(abi::Result result) const;

// NOLINTNEXTLINE(bugprone-macro-parentheses): a name and a parameter list take none
#define MOETAIL_DECLARE_MEMBER(member, symbol, parameters) Result(*member) parameters = nullptr;
  // The parameters are spelled in the interface's own names.
  using Result = abi::Result;
  using Device = abi::Device;
  using DevicePtr = abi::DevicePtr;
  using Context = abi::Context;
  using Module = abi::Module;
  using Function = abi::Function;
  using Stream = abi::Stream;
  using Event = abi::Event;
  using Graph = abi::Graph;
  using GraphNode = abi::GraphNode;
  using GraphExec = abi::GraphExec;
  using DeviceAttribute = abi::DeviceAttribute;
  using FunctionAttribute = abi::FunctionAttribute;
  using PointerAttribute = abi::PointerAttribute;
  using LaunchConfig = abi::LaunchConfig;
  using CaptureStatus = abi::CaptureStatus;
  using CaptureMode = abi::CaptureMode;
  using HostFunction = abi::HostFunction;
  using Uuid = abi::Uuid;
  MOETAIL_CUDA_DRIVER_FUNCTIONS(MOETAIL_DECLARE_MEMBER)
#undef MOETAIL_DECLARE_MEMBER

 private:
  Driver() = default;
  [[noreturn]] void fail(abi::Result result, CallSite site, const std::string& arguments) const;

  std::string library_;
  int version_ = 0;
};

inline constexpr const char* kDriverSoname = "libcuda.so.1";
/// CUDA 12.0: the first driver whose sm_90 cluster launches and dependent launches moetail relies on.
inline constexpr int kOldestDriver = 12000;
/// Compute capability 9.0: clusters, bulk copies and multicast stores begin there.
inline constexpr int kOldestArchitecture = 90;

/// "13.0" of 13000.
std::string version_text(int version);

/// Whether the CUDA engine can run on this machine, and if not, why.
struct Support {
  bool usable = false;
  std::string reason;  ///< in words, empty where usable
};

/// Looks at device `ordinal`: library, driver version, number of devices, architecture, mapped host memory, clusters. Creates
/// no context and is not collective. Costs a cuInit the first time in a process, microseconds after that.
Support cuda_support(int ordinal = 0) noexcept;
/// The same of one library instead of the machine's.
Support cuda_support_of(const std::string& library, int ordinal = 0) noexcept;

}  // namespace moetail::cuda
