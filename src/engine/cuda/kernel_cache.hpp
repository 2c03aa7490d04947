// SPDX-License-Identifier: Apache-2.0
// Compiled kernels: in memory, on disk, and from the compiler only where neither has them.
#pragma once

#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/cuda/cache_entry.hpp"
#include "engine/cuda/nvrtc.hpp"

namespace moetail::cuda {

/// One kernel to compile: everything that decides its machine code. The embedded headers belong to every spec.
struct KernelSpec {
  std::string entry;                 ///< the extern "C" name; also what messages call it
  std::string source;                ///< such as: #include "kernels/front.cuh"
  std::vector<std::string> defines;  ///< "MOETAIL_RANKS=8"
  std::string arch;                  ///< "sm_90a"
  std::vector<std::string> options;  ///< further compiler options, such as --maxrregcount=120
};

/// What a cache compiles with. Both functions are called from any thread that asks for a kernel.
struct Compiler {
  std::function<std::string()> version;  ///< everything beyond the spec that decides the machine code
  std::function<CompileResult(const KernelSpec&)> compile;
};

/// The machine's NVRTC over the embedded headers: its version is NVRTC's, the headers' hash and the standard options. NVRTC is loaded
/// by the first call of a function.
Compiler nvrtc_compiler();

/// The folder kernels are kept in: MOETAIL_CACHE_DIR; else XDG_CACHE_HOME/moetail; else HOME/.cache/moetail. Nothing where
/// MOETAIL_CACHE_DIR is set and empty, or where there is none of the three.
std::optional<std::filesystem::path> kernel_cache_directory();

/// Safe to use from any thread. A kernel that several threads want at once is compiled once; different kernels compile at the same
/// time. A folder that cannot be written or read costs nothing but compile time: the cache then works in memory alone. So does one that
/// another user could have written to, and an entry that is a link or another user's is not read (base/own_files.hpp).
class KernelCache {
 public:
  enum class IfMissing { compile, fail };
  enum class Origin { memory, disk, compiler };
  struct Found {
    std::shared_ptr<const CompiledKernel> kernel;
    Origin origin;
  };

  explicit KernelCache(Compiler compiler = nvrtc_compiler(),
                       std::optional<std::filesystem::path> directory = kernel_cache_directory());

  /// The kernel of `spec`. With IfMissing::fail (a stream is capturing) a kernel that is not in memory throws Code::call_order and
  /// says to warm up. Compile errors throw as Nvrtc::compile does, every time they are asked for.
  Found get(const KernelSpec& spec, IfMissing if_missing = IfMissing::compile);

  /// Where a spec's entry is kept, or would be; empty where nothing is kept on disk.
  std::filesystem::path file_of(const KernelSpec& spec) const;
  const std::optional<std::filesystem::path>& directory() const { return directory_; }
  /// Why the last write or read that failed did; empty where all is well. Never an error of the caller's.
  std::string trouble() const;

 private:
  using Entry = std::shared_future<std::shared_ptr<const CompiledKernel>>;

  Found make(const KernelSpec& spec, const std::string& identity);
  std::filesystem::path file_of(const KernelSpec& spec, const std::string& identity) const;
  std::optional<CompiledKernel> read(const std::filesystem::path& file, const std::string& identity);
  void write(const std::filesystem::path& file, const std::string& identity, const CompiledKernel& kernel);
  void note_trouble(const std::string& reason);

  Compiler compiler_;
  std::optional<std::filesystem::path> directory_;
  mutable std::mutex mutex_;              // guards the two below, and is not held while compiling
  std::map<std::string, Entry> entries_;  // by identity
  std::string trouble_;
};

}  // namespace moetail::cuda
