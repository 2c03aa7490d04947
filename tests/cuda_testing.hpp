// SPDX-License-Identifier: Apache-2.0
// What the tests of the CUDA engine's host side share: the fake driver, environment variables that come back, folders that go.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "base/error.hpp"
#include "engine/cuda/context.hpp"
#include "engine/cuda/nvrtc.hpp"
#include "tests/fake_cuda/fake_cuda.hpp"

namespace moetail::testing {

/// The fake driver's state, as new.
inline FakeState& fresh_fake_state() {
  void* const library = dlopen(MOETAIL_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  FakeState& state = *reinterpret_cast<FakeStateFunction>(dlsym(library, "fake_cuda_state"))();
  state = FakeState{};
  return state;
}

/// A test that runs against the fake driver.
class FakeCudaTest : public ::testing::Test {
 protected:
  cuda::ContextRef retain() { return cuda::Context::retain(cuda::Driver::load(MOETAIL_FAKE_CUDA)); }

  /// Nothing of what the driver ever gave is still out.
  void expect_nothing_lives() const {
    for (const auto& [kind, count] : fake.live) EXPECT_EQ(count, 0) << kind;
  }

  FakeState& fake = fresh_fake_state();
};

/// Sets an environment variable while it lives; no value unsets it.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const std::optional<std::string>& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    set(value);
  }
  ~ScopedEnv() { set(old_); }
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;

 private:
  void set(const std::optional<std::string>& value) {
    value ? setenv(name_.c_str(), value->c_str(), 1) : unsetenv(name_.c_str());
  }
  std::string name_;
  std::optional<std::string> old_;
};

/// A new folder, removed at the end with all it holds.
class ScopedFolder {
 public:
  ScopedFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "moetail-cuda-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp: " + name);
    path_ = name;
  }
  ~ScopedFolder() {
    std::error_code ignored;
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all, ignored);
    std::filesystem::remove_all(path_, ignored);
  }
  ScopedFolder(const ScopedFolder&) = delete;
  ScopedFolder& operator=(const ScopedFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// The machine's NVRTC, or the one of the toolkit that CMake found; null where there is neither.
inline std::shared_ptr<const cuda::Nvrtc> find_nvrtc() {
  std::vector<std::string> libraries;
#ifdef MOETAIL_TOOLKIT_LIBRARIES
  for (const char* soname : {"libnvrtc.so.13", "libnvrtc.so.12"})
    libraries.push_back(std::string(MOETAIL_TOOLKIT_LIBRARIES) + "/" + soname);
#endif
  try {
    return cuda::Nvrtc::of_machine();
  } catch (const Error&) {
  }
  for (const std::string& library : libraries) {
    try {
      return cuda::Nvrtc::load(library);
    } catch (const Error&) {
    }
  }
  return nullptr;
}

}  // namespace moetail::testing
