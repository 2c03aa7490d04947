// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/kernel_cache.hpp"

#include <chrono>
#include <utility>

#include "base/atomic_file.hpp"
#include "base/env.hpp"
#include "base/error.hpp"
#include "base/own_files.hpp"
#include "engine/cuda/sources.hpp"

namespace moetail::cuda {
namespace {

constexpr std::uintmax_t kMaxEntryBytes = 64u << 20;  // a hundred times the largest kernel: no entry of ours

/// All that decides the machine code, as text: what an entry is compared by. Each part says its length, so that no two specs share
/// a text.
std::string identity_of(const KernelSpec& spec, const std::string& compiler_version) {
  std::string text;
  const auto add = [&text](std::string_view name, std::string_view value) {
    text += fmt::format("{} {} {}\n", name, value.size(), value);
  };
  add("compiler", compiler_version);
  add("arch", spec.arch);
  add("entry", spec.entry);
  for (const std::string& define : spec.defines) add("define", define);
  for (const std::string& option : spec.options) add("option", option);
  add("source", spec.source);
  return text;
}

/// What ptxas said of the entry that the spec names.
KernelUsage usage_of(const KernelSpec& spec, const CompileResult& result) {
  for (const KernelUsage& usage : result.usage)
    if (usage.name == spec.entry) return usage;
  base::fail(Code::internal,
             "kernel {}: the compiler's log reports no entry of that name: accepted is an extern \"C\" "
             "__global__ function. "
             "The log:\n{}",
             spec.entry, result.log);
}

}  // namespace

Compiler nvrtc_compiler() {
  Compiler compiler;
  compiler.version = [] {
    std::string version =
        fmt::format("NVRTC {}, headers {}", Nvrtc::of_machine()->version(), embedded_headers_hash());
    for (const std::string& option : standard_compile_options()) version += " " + option;
    return version;
  };
  compiler.compile = [](const KernelSpec& spec) {
    CompileRequest request;
    request.name = spec.entry;
    request.source = spec.source;
    request.headers = embedded_headers();
    request.arch = spec.arch;
    request.defines = spec.defines;
    request.options = spec.options;
    return Nvrtc::of_machine()->compile(request);
  };
  return compiler;
}

std::optional<std::filesystem::path> kernel_cache_directory() {
  if (base::is_set_empty(base::kCacheDir)) return std::nullopt;
  if (const auto given = base::read_env(base::kCacheDir)) return *given;
  if (const auto caches = base::read_env(base::kXdgCacheHome))
    return std::filesystem::path(*caches) / "moetail";
  if (const auto home = base::read_env(base::kHome))
    return std::filesystem::path(*home) / ".cache" / "moetail";
  return std::nullopt;
}

KernelCache::KernelCache(Compiler compiler, std::optional<std::filesystem::path> directory)
    : compiler_(std::move(compiler)), directory_(std::move(directory)) {}

KernelCache::Found KernelCache::get(const KernelSpec& spec, IfMissing if_missing) {
  const std::string identity = identity_of(spec, compiler_.version());
  std::promise<std::shared_ptr<const CompiledKernel>> promise;
  Entry entry;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = entries_.find(identity); found != entries_.end()) entry = found->second;
    if (!entry.valid() && if_missing == IfMissing::compile)
      entries_.emplace(identity, promise.get_future().share());
  }
  // Another thread may be making it. Under capture that is too late as well: a capture must not wait for a compiler.
  const bool is_there =
      entry.valid() && (if_missing == IfMissing::compile ||
                        entry.wait_for(std::chrono::seconds(0)) == std::future_status::ready);
  if (is_there) return {entry.get(), Origin::memory};
  if (if_missing == IfMissing::fail)
    base::fail(Code::call_order,
               "kernel {} for {} is not compiled, and a stream is capturing: accepted is a warm-up of this "
               "batch and mode "
               "before the capture",
               spec.entry, spec.arch);
  try {
    Found made = make(spec, identity);
    promise.set_value(made.kernel);
    return made;
  } catch (...) {
    // Whoever waits gets the error; whoever asks later tries again.
    promise.set_exception(std::current_exception());
    const std::lock_guard lock(mutex_);
    entries_.erase(identity);
    throw;
  }
}

KernelCache::Found KernelCache::make(const KernelSpec& spec, const std::string& identity) {
  const std::filesystem::path file = file_of(spec, identity);
  if (!file.empty())
    if (auto kept = read(file, identity))
      return {std::make_shared<const CompiledKernel>(*std::move(kept)), Origin::disk};
  CompileResult result = compiler_.compile(spec);
  CompiledKernel kernel;
  kernel.usage = usage_of(spec, result);
  kernel.cubin = std::move(result.cubin);
  if (!file.empty()) write(file, identity, kernel);
  return {std::make_shared<const CompiledKernel>(std::move(kernel)), Origin::compiler};
}

std::filesystem::path KernelCache::file_of(const KernelSpec& spec) const {
  return file_of(spec, identity_of(spec, compiler_.version()));
}

std::filesystem::path KernelCache::file_of(const KernelSpec& spec, const std::string& identity) const {
  if (!directory_) return {};
  return *directory_ / fmt::format("{}-{}-{:016x}.cubin", spec.entry, spec.arch, hash_text(identity));
}

std::optional<CompiledKernel> KernelCache::read(const std::filesystem::path& file,
                                                const std::string& identity) {
  try {
    if (!std::filesystem::exists(std::filesystem::symlink_status(*directory_))) return std::nullopt;
    base::check_own_folder(*directory_);
    const auto bytes = base::read_own_file(file, kMaxEntryBytes);
    if (!bytes) return std::nullopt;
    auto kernel = unpack_entry(*bytes, identity);
    if (!kernel) note_trouble(fmt::format("{}: damaged or foreign, made again", file.string()));
    return kernel;
  } catch (const std::exception& error) {
    note_trouble(error.what());
    return std::nullopt;
  }
}

void KernelCache::write(const std::filesystem::path& file, const std::string& identity,
                        const CompiledKernel& kernel) {
  try {
    base::make_own_folder(*directory_);
    base::AtomicFile entry(file, base::kOwnFileMode);
    entry.write_at(0, pack_entry(identity, kernel));
    entry.commit();
  } catch (const std::exception& error) {
    note_trouble(error.what());
  }
}

std::string KernelCache::trouble() const {
  const std::lock_guard lock(mutex_);
  return trouble_;
}

void KernelCache::note_trouble(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  trouble_ = reason;
}

}  // namespace moetail::cuda
