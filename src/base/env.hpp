// SPDX-License-Identifier: Apache-2.0
// The environment variables that moetail reads: one table, which `moetail info` prints, and the one way to read them.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace moetail::base {

struct EnvVariable {
  const char* name;
  const char* meaning;
  const char* accepted;       ///< what it may hold
  const char* default_value;  ///< what happens without it
};

inline constexpr EnvVariable kCpuTarget = {
    "MOETAIL_CPU_TARGET", "dispatch target of the CPU engine's arithmetic", "a runnable target, see above",
    "the best one that this machine runs"};

inline constexpr EnvVariable kCeilings = {
    "MOETAIL_CEILINGS",
    "read bandwidth and bf16 peak that floors are computed from, so that nothing is measured",
    "GBYTE_PER_S,GFLOP_PER_S", "measured when needed"};

inline constexpr EnvVariable kMulticast = {
    "MOETAIL_MULTICAST",
    "whether one store may reach all ranks; on the CPU, whether they read one common copy of the latents",
    "0 or 1", "1 where the transport offers it"};

inline constexpr EnvVariable kCudaDriver = {"MOETAIL_CUDA_DRIVER", "the CUDA driver's library",
                                            "a soname or a path", "libcuda.so.1"};

inline constexpr EnvVariable kNvrtc = {"MOETAIL_NVRTC", "the CUDA run-time compiler's library",
                                       "a soname or a path, the only one that is tried",
                                       "libnvrtc.so.13 or .12: the loader's path, CUDA_HOME, CUDA_PATH"};

inline constexpr EnvVariable kCublasLt = {
    "MOETAIL_CUBLASLT", "cuBLASLt's library, the baseline of moetail bench on a GPU",
    "a soname or a path, the only one that is tried",
    "libcublasLt.so.13 or .12: the loader's path, CUDA_HOME, CUDA_PATH"};

inline constexpr EnvVariable kCudaHome = {
    "CUDA_HOME", "where a CUDA toolkit is: its lib64 or lib may hold NVRTC and cuBLASLt", "a folder",
    "not looked at"};
inline constexpr EnvVariable kCudaPath = {"CUDA_PATH", "the same, looked at after CUDA_HOME", "a folder",
                                          "not looked at"};

inline constexpr EnvVariable kCacheDir = {
    "MOETAIL_CACHE_DIR", "where compiled CUDA kernels are kept",
    "a folder, made if it is missing; set but empty: kept in memory only",
    "XDG_CACHE_HOME/moetail, else HOME/.cache/moetail"};
inline constexpr EnvVariable kXdgCacheHome = {"XDG_CACHE_HOME", "the user's caches", "an absolute path",
                                              "HOME/.cache"};
inline constexpr EnvVariable kHome = {"HOME", "the user's folder, for .cache", "an absolute path",
                                      "no cache on disk"};

/// All of them, in the order in which they are printed. A variable that is read and stands in no row here is a mistake.
inline constexpr EnvVariable kEnvironment[] = {kCpuTarget, kCeilings,     kMulticast, kCudaDriver,
                                               kNvrtc,     kCublasLt,     kCudaHome,  kCudaPath,
                                               kCacheDir,  kXdgCacheHome, kHome};

/// The variable's value, or nothing where it is unset or empty.
inline std::optional<std::string> read_env(const EnvVariable& variable) {
  const char* value = std::getenv(variable.name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

/// Whether the variable is set and holds nothing: for those where that means something.
inline bool is_set_empty(const EnvVariable& variable) {
  const char* value = std::getenv(variable.name);
  return value != nullptr && *value == '\0';
}

}  // namespace moetail::base
