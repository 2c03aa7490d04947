// SPDX-License-Identifier: Apache-2.0
// NVIDIA's run-time compiler, found at run time: source text in, machine code out. Needs no GPU and no CUDA header.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace moetail::cuda {

/// A header as an include line names it, and its text.
struct Header {
  std::string name;
  std::string text;
};

struct CompileRequest {
  std::string name;    ///< of the unit, in messages
  std::string source;  ///< entries are extern "C", so that they are found under their own names
  std::span<const Header> headers;
  std::string arch;                  ///< "sm_90a"
  std::vector<std::string> defines;  ///< "NAME=VALUE"
  std::vector<std::string> options;  ///< further ones
  bool wants_ptx = false;
};

/// What ptxas said of one entry.
struct KernelUsage {
  std::string name;
  int num_registers = 0;
  std::size_t stack_bytes = 0;
  std::size_t spill_store_bytes = 0;
  std::size_t spill_load_bytes = 0;
  std::size_t static_shared_bytes = 0;
  int num_barriers = 0;
};

struct CompileResult {
  std::vector<std::byte> cubin;
  std::string ptx;  ///< where asked for
  std::string log;
  std::vector<KernelUsage> usage;  ///< an entry each, in the log's order
};

/// Reads the lines of `ptxas -v` in a compiler's log. Functions that are no entries are left out.
std::vector<KernelUsage> parse_ptxas_log(const std::string& log);

/// What every kernel of ours is compiled with: C++20, no FMA that nobody wrote, unannotated functions are device functions, no
/// standard headers, ptxas reports.
std::vector<std::string> standard_compile_options();

/// A loaded NVRTC. compile may be called from any thread: NVRTC allows that for programs of their own.
class Nvrtc {
 public:
  /// Loads one library. Throws Code::unsupported with the reason.
  static std::shared_ptr<const Nvrtc> load(const std::string& library);
  /// The machine's: MOETAIL_NVRTC alone where it is set; else libnvrtc.so.13, .12 from the loader's path and then from lib64 and
  /// lib of CUDA_HOME and CUDA_PATH. Loaded once. Throws Code::unsupported with everything that was tried.
  static std::shared_ptr<const Nvrtc> of_machine();

  int major() const { return version_.first; }
  int minor() const { return version_.second; }
  /// "13.0"
  std::string version() const;
  const std::string& library() const { return library_; }

  /// Compiles with standard_compile_options. Throws Code::unsupported for an architecture that this NVRTC does not know, and
  /// Code::internal, with the whole log, for source that does not compile.
  CompileResult compile(const CompileRequest& request) const;

 private:
  struct Functions;
  Nvrtc() = default;

  std::shared_ptr<const Functions> functions_;
  std::string library_;
  std::pair<int, int> version_;
};

}  // namespace moetail::cuda
