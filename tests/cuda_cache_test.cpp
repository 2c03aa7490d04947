// SPDX-License-Identifier: Apache-2.0
// The kernel cache: what is kept is found without the compiler, what is damaged is made again, what cannot be written costs nothing
// but time. A compiler that counts stands in for NVRTC; the last case asks NVRTC itself.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "tests/cuda_cache_testing.hpp"
#include "tests/expect_error.hpp"
#include "tests/record.hpp"

namespace moetail::testing {
namespace {

class CudaCache : public CudaCacheTest {};

TEST_F(CudaCache, CompilesOnceThenFindsInMemoryThenOnDisk) {
  KernelCache first = cache();
  EXPECT_EQ(first.get(spec_of()).origin, Origin::compiler);
  EXPECT_EQ(first.get(spec_of()).origin, Origin::memory);
  KernelCache second = cache();
  const auto found = second.get(spec_of());
  EXPECT_EQ(found.origin, Origin::disk);
  EXPECT_EQ(code_of(found), "BATCH=1");
  EXPECT_EQ(found.kernel->usage.name, "front");
  EXPECT_EQ(found.kernel->usage.num_registers, 77);
  EXPECT_EQ(found.kernel->usage.spill_load_bytes, 5u);
  EXPECT_EQ(compiler.compiled, 1);
  EXPECT_THAT(second.trouble(), IsEmpty());
}

TEST_F(CudaCache, EverythingThatDecidesTheCodeIsInTheKey) {
  KernelCache a_cache = cache();
  a_cache.get(spec_of());
  KernelSpec spec = spec_of();
  spec.arch = "sm_100a";
  EXPECT_EQ(a_cache.get(spec).origin, Origin::compiler);
  spec = spec_of();
  spec.options = {"--maxrregcount=96"};
  EXPECT_EQ(a_cache.get(spec).origin, Origin::compiler);
  spec = spec_of();
  spec.source = "other";
  EXPECT_EQ(a_cache.get(spec).origin, Origin::compiler);
  EXPECT_EQ(code_of(a_cache.get(spec_of("BATCH=2"))), "BATCH=2");
  // Where one part ends and the next begins counts.
  spec = spec_of();
  spec.defines = {"BATCH=1", "A"};
  a_cache.get(spec);
  spec.defines = {"BATCH=1A"};
  EXPECT_EQ(a_cache.get(spec).origin, Origin::compiler);
  EXPECT_EQ(num_files(), 7u);
  compiler.version = "1.1";
  KernelCache later = cache();
  EXPECT_EQ(later.get(spec_of()).origin, Origin::compiler);
  EXPECT_EQ(num_files(), 8u);
}

TEST_F(CudaCache, ADamagedEntryIsMadeAgain) {
  const auto file = cache().file_of(spec_of());
  cache().get(spec_of());
  const std::string whole = read(file);
  ASSERT_EQ(cache().get(spec_of()).origin, Origin::disk) << "the control: unharmed it is found";
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    write(file, damaged);
    KernelCache again = cache();
    const auto found = again.get(spec_of());
    EXPECT_EQ(found.origin, Origin::compiler) << "byte " << at;
    EXPECT_EQ(code_of(found), "BATCH=1");
    EXPECT_THAT(again.trouble(), HasSubstr("made again"));
    EXPECT_EQ(read(file), whole) << "and what was damaged is replaced";
  }
  record_fault("cache: an entry with any one byte damaged", kHost, whole.size(), "made again, and replaced");
}

TEST_F(CudaCache, ATruncatedEntryIsMadeAgain) {
  const auto file = cache().file_of(spec_of());
  cache().get(spec_of());
  const std::string whole = read(file);
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{8}, std::size_t{87}, std::size_t{88}, whole.size() - 1}) {
    write(file, whole.substr(0, length));
    EXPECT_EQ(cache().get(spec_of()).origin, Origin::compiler) << length << " bytes";
    EXPECT_EQ(read(file), whole);
  }
  write(file, whole + "more");
  EXPECT_EQ(cache().get(spec_of()).origin, Origin::compiler);
  record_fault("cache: an entry truncated or too long", kHost, 6, "made again, and replaced");
}

TEST_F(CudaCache, AnotherKernelsEntryUnderItsNameIsNotUsed) {
  cache().get(spec_of("BATCH=2"));
  std::filesystem::copy_file(cache().file_of(spec_of("BATCH=2")), cache().file_of(spec_of()));
  const auto found = cache().get(spec_of());
  EXPECT_EQ(found.origin, Origin::compiler);
  EXPECT_EQ(code_of(found), "BATCH=1");
  record_fault("cache: another kernel's entry under the name", kHost, 1, "made again");
}

TEST_F(CudaCache, AnUnwritableFolderCostsNothingButTime) {
  // Permissions do not stop root, a file in the folder's place stops everybody.
  const auto blocked = folder.path() / "file";
  write(blocked, "");
  for (int process = 0; process < 2; ++process) {
    KernelCache a_cache(compiler.functions(), blocked / "kernels");
    EXPECT_EQ(a_cache.get(spec_of()).origin, Origin::compiler);
    EXPECT_EQ(a_cache.get(spec_of()).origin, Origin::memory);
    EXPECT_THAT(a_cache.trouble(), HasSubstr("file"));
  }
  EXPECT_EQ(compiler.compiled, 2);
  record_fault("cache: a file in the folder's place", kHost, 2, "works in memory alone; the reason is kept");
}

TEST_F(CudaCache, AFolderInTheEntrysPlaceCostsNothingButTime) {
  std::filesystem::create_directory(cache().file_of(spec_of()));
  KernelCache a_cache = cache();
  EXPECT_EQ(a_cache.get(spec_of()).origin, Origin::compiler);
  EXPECT_THAT(a_cache.trouble(), HasSubstr("front-sm_90a"));
  record_fault("cache: a folder in an entry's place", kHost, 1,
               "the kernel comes from the compiler; the reason is kept");
}

TEST_F(CudaCache, OffIsInMemoryAlone) {
  KernelCache a_cache(compiler.functions(), std::nullopt);
  EXPECT_EQ(a_cache.get(spec_of()).origin, Origin::compiler);
  EXPECT_EQ(a_cache.get(spec_of()).origin, Origin::memory);
  EXPECT_TRUE(a_cache.file_of(spec_of()).empty());
}

TEST_F(CudaCache, LeavesNoTemporaryFiles) {
  KernelCache a_cache = cache();
  for (int batch = 1; batch <= 5; ++batch) a_cache.get(spec_of("BATCH=" + std::to_string(batch)));
  EXPECT_EQ(num_files(), 5u);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    EXPECT_EQ(entry.path().extension(), ".cubin") << entry.path();
}

TEST_F(CudaCache, ThreadsShareOneCompilation) {
  KernelCache a_cache = cache();
  std::atomic<int> from_compiler = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread)
    threads.emplace_back([&, thread] {
      for (int batch = 0; batch < 16; ++batch) {
        const std::string define = "BATCH=" + std::to_string((batch + thread) % 16);
        const auto found = a_cache.get(spec_of(define));
        EXPECT_EQ(code_of(found), define);
        if (found.origin == Origin::compiler) ++from_compiler;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(compiler.compiled, 16);
  EXPECT_EQ(from_compiler, 16);
  EXPECT_EQ(num_files(), 16u);
}

TEST_F(CudaCache, TwoProcessesWriteTheSameEntry) {
  // Two caches are what two processes are: they share nothing but the folder.
  for (int round = 0; round < 20; ++round) {
    KernelCache a = cache();
    KernelCache b = cache();
    std::thread other([&] { EXPECT_EQ(code_of(b.get(spec_of())), "BATCH=1"); });
    EXPECT_EQ(code_of(a.get(spec_of())), "BATCH=1");
    other.join();
    EXPECT_EQ(num_files(), 1u);
    EXPECT_EQ(cache().get(spec_of()).origin, Origin::disk);
    std::filesystem::remove(a.file_of(spec_of()));
  }
}

TEST_F(CudaCache, UnderCaptureAMissingKernelIsAnError) {
  KernelCache a_cache = cache();
  expect_error(Code::call_order, {"kernel front", "sm_90a", "capturing", "warm-up"},
               [&] { a_cache.get(spec_of(), IfMissing::fail); });
  EXPECT_EQ(compiler.compiled, 0);
  a_cache.get(spec_of());
  EXPECT_EQ(a_cache.get(spec_of(), IfMissing::fail).origin, Origin::memory);
}

TEST_F(CudaCache, ACompileErrorIsNotKept) {
  KernelCache a_cache = cache();
  KernelSpec spec = spec_of();
  spec.source = "";
  for (int attempt = 1; attempt <= 2; ++attempt) {
    expect_error(Code::internal, {"front does not compile"}, [&] { a_cache.get(spec); });
    EXPECT_EQ(compiler.compiled, attempt);
  }
  EXPECT_EQ(num_files(), 0u);
}

TEST(CudaCacheFolder, FollowsTheEnvironment) {
  const ScopedEnv home("HOME", "/somewhere");
  const ScopedEnv xdg("XDG_CACHE_HOME", std::nullopt);
  {
    const ScopedEnv ours("MOETAIL_CACHE_DIR", std::nullopt);
    EXPECT_EQ(cuda::kernel_cache_directory(), std::filesystem::path("/somewhere/.cache/moetail"));
    const ScopedEnv caches("XDG_CACHE_HOME", "/caches");
    EXPECT_EQ(cuda::kernel_cache_directory(), std::filesystem::path("/caches/moetail"));
    const ScopedEnv given("MOETAIL_CACHE_DIR", "/given");
    EXPECT_EQ(cuda::kernel_cache_directory(), std::filesystem::path("/given"));
  }
  {
    const ScopedEnv off("MOETAIL_CACHE_DIR", "");
    EXPECT_FALSE(cuda::kernel_cache_directory().has_value());
  }
  const ScopedEnv ours("MOETAIL_CACHE_DIR", std::nullopt);
  const ScopedEnv no_home("HOME", std::nullopt);
  EXPECT_FALSE(cuda::kernel_cache_directory().has_value());
}

TEST(CudaCacheWithNvrtc, KeepsWhatItCompiled) {
  try {
    cuda::Nvrtc::of_machine();
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const ScopedFolder folder;
  const KernelSpec spec = {
      "tiny", "extern \"C\" __global__ void tiny(int* out) { *out = VALUE; }", {"VALUE=3"}, "sm_90a", {}};
  KernelCache first(cuda::nvrtc_compiler(), folder.path());
  const auto made = first.get(spec);
  EXPECT_EQ(made.origin, Origin::compiler);
  EXPECT_GT(made.kernel->usage.num_registers, 0);
  KernelCache second(cuda::nvrtc_compiler(), folder.path());
  const auto kept = second.get(spec);
  EXPECT_EQ(kept.origin, Origin::disk);
  EXPECT_EQ(kept.kernel->cubin, made.kernel->cubin);
  KernelSpec mangled = spec;
  mangled.source = "__global__ void tiny(int* out) { *out = VALUE; }";
  expect_error(Code::internal, {"no entry of that name", "extern \"C\""}, [&] { second.get(mangled); });
}

}  // namespace
}  // namespace moetail::testing
