// SPDX-License-Identifier: Apache-2.0
// What the tests of the kernel cache share: a compiler that counts and stands in for NVRTC, and a folder.
#pragma once

#include <gmock/gmock.h>

#include <atomic>
#include <fstream>
#include <iterator>

#include "engine/cuda/kernel_cache.hpp"
#include "tests/cuda_testing.hpp"

namespace moetail::testing {

using cuda::KernelCache;
using cuda::KernelSpec;
using IfMissing = KernelCache::IfMissing;
using Origin = KernelCache::Origin;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Its machine code is the spec's defines, so that a mix-up shows.
struct CountingCompiler {
  std::atomic<int> compiled = 0;
  std::string version = "1.0";

  cuda::Compiler functions() {
    return {[this] { return version; },
            [this](const KernelSpec& spec) {
              ++compiled;
              if (spec.source.empty()) base::fail(Code::internal, "kernel {} does not compile", spec.entry);
              cuda::CompileResult result;
              for (const std::string& define : spec.defines)
                for (const char c : define) result.cubin.push_back(static_cast<std::byte>(c));
              cuda::KernelUsage usage;
              usage.name = spec.entry;
              usage.num_registers = 77;
              usage.spill_load_bytes = 5;
              result.usage = {usage};
              return result;
            }};
  }
};

inline KernelSpec spec_of(const std::string& define = "BATCH=1") {
  return {"front", "source", {define}, "sm_90a", {}};
}
inline std::string code_of(const KernelCache::Found& found) {
  return {reinterpret_cast<const char*>(found.kernel->cubin.data()), found.kernel->cubin.size()};
}

class CudaCacheTest : public ::testing::Test {
 protected:
  /// A cache as a new process has it: nothing in memory.
  KernelCache cache() { return KernelCache(compiler.functions(), folder.path()); }
  std::size_t num_files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder.path()), {}));
  }
  std::string read(const std::filesystem::path& file) const {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  void write(const std::filesystem::path& file, const std::string& bytes) const {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  }

  ScopedFolder folder;
  CountingCompiler compiler;
};

}  // namespace moetail::testing
