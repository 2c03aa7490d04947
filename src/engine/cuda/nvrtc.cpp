// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/nvrtc.hpp"

#include <dlfcn.h>

#include <cstring>
#include <optional>

#include "base/env.hpp"
#include "base/error.hpp"

namespace moetail::cuda {

struct Program;  // NVRTC's own

namespace {

using NvrtcResult = int;
constexpr NvrtcResult kSuccess = 0;

constexpr const char* kSonames[] = {"libnvrtc.so.13", "libnvrtc.so.12"};

std::vector<std::string> candidates() {
  if (const auto only = base::read_env(base::kNvrtc)) return {*only};
  std::vector<std::string> names(std::begin(kSonames), std::end(kSonames));
  for (const auto& variable : {base::kCudaHome, base::kCudaPath})
    if (const auto root = base::read_env(variable))
      for (const char* folder : {"lib64", "lib"})
        for (const char* soname : kSonames) names.push_back(fmt::format("{}/{}/{}", *root, folder, soname));
  return names;
}

std::vector<const char*> pointers(const std::vector<std::string>& strings) {
  std::vector<const char*> result;
  result.reserve(strings.size());
  for (const std::string& string : strings) result.push_back(string.c_str());
  return result;
}

}  // namespace

// NVRTC's interface, stable since CUDA 8 (cubin: CUDA 11.1). tests/cuda_abi_test.cpp has no part in it: these are plain C
// functions of pointers and sizes.
struct Nvrtc::Functions {
  NvrtcResult (*version)(int*, int*);
  const char* (*error_string)(NvrtcResult);
  NvrtcResult (*create)(Program**, const char* source, const char* name, int num_headers,
                        const char* const* headers, const char* const* include_names);
  NvrtcResult (*destroy)(Program**);
  NvrtcResult (*compile)(Program*, int num_options, const char* const* options);
  NvrtcResult (*log_size)(Program*, std::size_t*);
  NvrtcResult (*log)(Program*, char*);
  NvrtcResult (*cubin_size)(Program*, std::size_t*);
  NvrtcResult (*cubin)(Program*, char*);
  NvrtcResult (*ptx_size)(Program*, std::size_t*);
  NvrtcResult (*ptx)(Program*, char*);

  void check(NvrtcResult result, const char* call, const std::string& unit) const {
    if (result != kSuccess) base::fail(Code::internal, "{}({}): {}", call, unit, error_string(result));
  }

  std::string text(Program* program, const std::string& unit, NvrtcResult (*size_of)(Program*, std::size_t*),
                   NvrtcResult (*get)(Program*, char*), const char* call) const {
    std::size_t size = 0;
    check(size_of(program, &size), call, unit);
    std::string result(size, '\0');
    if (size > 0) check(get(program, result.data()), call, unit);
    while (!result.empty() && result.back() == '\0') result.pop_back();
    return result;
  }
};

std::vector<std::string> standard_compile_options() {
  return {"--std=c++20", "-default-device", "--fmad=false", "--ptxas-options=-v"};
}

std::shared_ptr<const Nvrtc> Nvrtc::load(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const reason = dlerror();
    base::fail(Code::unsupported, "no NVRTC: {}", reason != nullptr ? reason : library.c_str());
  }
  auto functions = std::make_shared<Functions>();
  const auto find = [&](auto& member, const char* symbol) {
    void* const found = dlsym(handle, symbol);
    if (found == nullptr) base::fail(Code::unsupported, "no NVRTC: {} has no function {}", library, symbol);
    std::memcpy(&member, &found, sizeof member);
  };
  find(functions->version, "nvrtcVersion");
  find(functions->error_string, "nvrtcGetErrorString");
  find(functions->create, "nvrtcCreateProgram");
  find(functions->destroy, "nvrtcDestroyProgram");
  find(functions->compile, "nvrtcCompileProgram");
  find(functions->log_size, "nvrtcGetProgramLogSize");
  find(functions->log, "nvrtcGetProgramLog");
  find(functions->cubin_size, "nvrtcGetCUBINSize");
  find(functions->cubin, "nvrtcGetCUBIN");
  find(functions->ptx_size, "nvrtcGetPTXSize");
  find(functions->ptx, "nvrtcGetPTX");
  std::shared_ptr<Nvrtc> nvrtc(new Nvrtc);
  functions->check(functions->version(&nvrtc->version_.first, &nvrtc->version_.second), "nvrtcVersion",
                   library);
  nvrtc->library_ = library;
  nvrtc->functions_ = std::move(functions);
  return nvrtc;
}

std::shared_ptr<const Nvrtc> Nvrtc::of_machine() {
  struct Loaded {
    std::shared_ptr<const Nvrtc> nvrtc;
    std::string tried;
  };
  static const Loaded loaded = [] {
    Loaded result;
    for (const std::string& candidate : candidates()) {
      try {
        result.nvrtc = load(candidate);
        return result;
      } catch (const Error& error) {
        result.tried += fmt::format("{}{}", result.tried.empty() ? "" : "; ", error.what());
      }
    }
    return result;
  }();
  if (loaded.nvrtc == nullptr)
    base::fail(Code::unsupported, "{}. MOETAIL_NVRTC may name the library, CUDA_HOME a toolkit",
               loaded.tried);
  return loaded.nvrtc;
}

std::string Nvrtc::version() const {
  return fmt::format("{}.{}", major(), minor());
}

CompileResult Nvrtc::compile(const CompileRequest& request) const {
  std::vector<std::string> options = standard_compile_options();
  options.push_back("--gpu-architecture=" + request.arch);
  // From 12.8 on NVRTC keeps results of its own, whose log lacks the lines of ptxas that the budgets go by.
  if (version_ >= std::pair(12, 8)) options.push_back("--no-cache");
  for (const std::string& define : request.defines) options.push_back("-D" + define);
  options.insert(options.end(), request.options.begin(), request.options.end());
  std::vector<const char*> names;
  std::vector<const char*> texts;
  for (const Header& header : request.headers) {
    names.push_back(header.name.c_str());
    texts.push_back(header.text.c_str());
  }

  const Functions& nvrtc = *functions_;
  Program* program = nullptr;
  nvrtc.check(nvrtc.create(&program, request.source.c_str(), (request.name + ".cu").c_str(),
                           static_cast<int>(names.size()), texts.data(), names.data()),
              "nvrtcCreateProgram", request.name);
  const std::shared_ptr<void> destroyed_at_exit(nullptr, [&](void*) { nvrtc.destroy(&program); });

  const std::vector<const char*> option_pointers = pointers(options);
  const NvrtcResult result = nvrtc.compile(program, static_cast<int>(options.size()), option_pointers.data());
  CompileResult compiled;
  compiled.log = nvrtc.text(program, request.name, nvrtc.log_size, nvrtc.log, "nvrtcGetProgramLog");
  if (result != kSuccess) {
    const bool is_arch = compiled.log.find("--gpu-architecture") != std::string::npos;
    base::fail(is_arch ? Code::unsupported : Code::internal,
               "kernel {} does not compile for {} with NVRTC {}: {}. Its log:\n{}", request.name,
               request.arch, version(), nvrtc.error_string(result), compiled.log);
  }
  std::size_t size = 0;
  nvrtc.check(nvrtc.cubin_size(program, &size), "nvrtcGetCUBINSize", request.name);
  if (size == 0)
    base::fail(Code::unsupported,
               "kernel {}: no machine code for arch = {}: accepted is a real architecture, sm_90a say",
               request.name, request.arch);
  compiled.cubin.resize(size);
  nvrtc.check(nvrtc.cubin(program, reinterpret_cast<char*>(compiled.cubin.data())), "nvrtcGetCUBIN",
              request.name);
  if (request.wants_ptx)
    compiled.ptx = nvrtc.text(program, request.name, nvrtc.ptx_size, nvrtc.ptx, "nvrtcGetPTX");
  compiled.usage = parse_ptxas_log(compiled.log);
  return compiled;
}

}  // namespace moetail::cuda
