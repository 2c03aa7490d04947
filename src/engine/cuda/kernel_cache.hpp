// SPDX-License-Identifier: Apache-2.0
// Compiled kernels: in memory, on disk, and from the compiler only where neither has them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/cuda/nvrtc.hpp"

namespace moetail::cuda {

/// One kernel to compile: everything that decides its machine code. The embedded headers belong to every spec.
struct KernelSpec {
  std::string entry;                 ///< the extern "C" name; also what messages call it
  std::string source;                ///< such as: #include "kernels/front.cuh"
  std::vector<std::string> defines;  ///< "MOETAIL_RANKS=8"
  std::string arch;                  ///< "sm_90a"
  std::vector<std::string> options;  ///< further compiler options, such as --maxrregcount
};

struct CompiledKernel {
  std::vector<std::byte> cubin;
  KernelUsage usage;  ///< of the entry
};

/// Where a kernel came from, for `warmup` and the tests.
enum class Origin { memory, disk, compiler };

/// What a cache compiles with. The functions are called from any thread that asks for a kernel.
struct Compiler {
  std::function<std::string()> version;  ///< "13.0"; part of the key
  std::function<CompileResult(const KernelSpec&)> compile;
};

/// The machine's NVRTC over the embedded headers. Loads it at the first call of a function.
Compiler nvrtc_compiler();

/// The folder kernels are kept in: MOETAIL_CACHE_DIR; else XDG_CACHE_HOME/moetail; else HOME/.cache/moetail. Nothing where
/// MOETAIL_CACHE_DIR is set and empty, or where there is none of the three.
std::optional<std::filesystem::path> kernel_cache_directory();

/// Safe to use from any thread. A kernel that several threads want at once is compiled once; different kernels compile at the same
/// time. A folder that cannot be written or read costs nothing but compile time: the cache then works in memory alone.
class KernelCache {
 public:
  explicit KernelCache(Compiler compiler = nvrtc_compiler(),
                       std::optional<std::filesystem::path> directory = kernel_cache_directory());

  enum class IfMissing { compile, fail };
  struct Found {
    std::shared_ptr<const CompiledKernel> kernel;
    Origin origin;
  };

  /// The kernel of `spec`. With IfMissing::fail (a stream is capturing) a kernel that is not in memory throws Code::call_order and
  /// says to warm up. Compile errors throw as Nvrtc::compile does, every time they are asked for.
  Found get(const KernelSpec& spec, IfMissing if_missing = IfMissing::compile);

  /// The name of a spec's entry on disk, 32 hexadecimal digits: a hash of source, headers, defines, options, arch and compiler.
  std::string key(const KernelSpec& spec) const;
  const std::optional<std::filesystem::path>& directory() const { return directory_; }
  /// Why the folder is not used, though it was asked for; empty where it is. The first reason stays.
  std::string directory_trouble() const;

 private:
  using Entry = std::shared_future<std::shared_ptr<const CompiledKernel>>;
  Found make(const KernelSpec& spec, const std::string& key);
  void note_trouble(const std::string& reason);

  Compiler compiler_;
  std::optional<std::filesystem::path> directory_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;
  std::string trouble_;
};

}  // namespace moetail::cuda
