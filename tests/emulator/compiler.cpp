// SPDX-License-Identifier: Apache-2.0
// NVRTC's functions, with the host's C++ compiler behind them.
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

#include "tests/emulator/image.hpp"

extern char** environ;

namespace moetail::cuda {
struct Program {
  std::string source;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string log, image;
};
}  // namespace moetail::cuda

using moetail::cuda::Program;

namespace {

namespace fs = std::filesystem;

constexpr int kSuccess = 0, kCompilation = 6;

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_text(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

/// This library, which kernels link to.
std::string own_path() {
  Dl_info info{};
  dladdr(reinterpret_cast<const void*>(&own_path), &info);
  return info.dli_fname;
}

/// A folder of its own, gone with the object.
class TempFolder {
 public:
  TempFolder() {
    std::string name = fs::temp_directory_path() / "moetail-emulator-XXXXXX";
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// Runs a program; both its outputs go to `log`. Its exit status.
int run(const std::vector<std::string>& words, const fs::path& log) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_CREAT | O_WRONLY, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return -1;
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// The entries of a kernel's text, by name, and those of the library's kernel that it includes.
std::vector<std::string> entries_of(const Program& program) {
  static const std::regex entry(R"(__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\()");
  std::string text = program.source;
  for (const auto& [name, header] : program.headers)
    if (name.starts_with("kernels/") && program.source.find('"' + name + '"') != std::string::npos)
      text += header;
  std::vector<std::string> names;
  for (std::sregex_iterator it(text.begin(), text.end(), entry), end; it != end; ++it)
    names.push_back((*it)[1]);
  return names;
}

}  // namespace

#define EXPORT __attribute__((visibility("default")))

extern "C" {

// A version that NVRTC never has: what this makes must not be found in a cache by the real one's name, nor after a change.
EXPORT int nvrtcVersion(int* major, int* minor) {
  std::size_t hash =
      std::hash<std::string>()(own_path() + text_of(MOETAIL_EMULATOR_TREE "/tests/emulator/machine.hpp"));
  for (const auto& entry : fs::recursive_directory_iterator(MOETAIL_EMULATOR_KERNEL))
    if (entry.is_regular_file()) hash = hash * 31 + std::hash<std::string>()(text_of(entry.path()));
  *major = 99;
  *minor = static_cast<int>(hash % 1'000'000'000);
  return kSuccess;
}
EXPORT const char* nvrtcGetErrorString(int result) {
  return result == kSuccess ? "success" : "the host's compiler failed";
}
EXPORT int nvrtcCreateProgram(Program** program, const char* source, const char*, int num_headers,
                              const char* const* headers, const char* const* names) {
  *program = new Program{source, {}, {}, {}};
  for (int i = 0; i < num_headers; ++i) (*program)->headers.emplace_back(names[i], headers[i]);
  return kSuccess;
}
EXPORT int nvrtcDestroyProgram(Program** program) {
  delete *program;
  *program = nullptr;
  return kSuccess;
}
EXPORT int nvrtcCompileProgram(Program* program, int num_options, const char* const* options) {
  const TempFolder folder;
  const fs::path root = folder.path();
  if (root.empty()) {
    program->log = "no temporary folder";
    return kCompilation;
  }
  for (const auto& [name, text] : program->headers) write_text(root / "include" / name, text);
  const std::vector<std::string> entries = entries_of(*program);
  std::string source = program->source + "\nunsigned char shared[16];\n";
  for (const std::string& entry : entries) source += "MOETAIL_EMULATED_ENTRY(" + entry + ")\n";
  write_text(root / "kernel.cpp", source);
  const std::string kernel = MOETAIL_EMULATOR_KERNEL, tree = MOETAIL_EMULATOR_TREE;
  std::vector<std::string> words = {MOETAIL_EMULATOR_COMPILER,
                                    "-std=c++20",
                                    "-O1",
                                    "-march=native",
                                    "-ffp-contract=off",
                                    "-fno-strict-aliasing",
                                    "-fPIC",
                                    "-shared",
                                    "-w",
                                    "-I",
                                    kernel,
                                    "-I",
                                    tree,
                                    "-I",
                                    root / "include",
                                    "-include",
                                    kernel + "/prelude.hpp"};
  for (int i = 0; i < num_options; ++i)
    if (std::strncmp(options[i], "-D", 2) == 0) words.push_back(options[i]);
  const fs::path image = root / "kernel.so", log = root / "log";
  for (const std::string& word :
       {(root / "kernel.cpp").string(), own_path(), std::string("-o"), image.string()})
    words.push_back(word);
  const int status = run(words, log);
  program->log = text_of(log);
  if (status != 0) return kCompilation;
  for (const std::string& entry : entries)
    program->log += "ptxas info    : Compiling entry function '" + entry +
                    "' for 'sm_90a'\nptxas info    : Function properties for " + entry +
                    "\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
                    "ptxas info    : Used 64 registers, used 1 barriers\n";
  const std::string code = text_of(image);
  moetail::emulator::Image head{};
  std::memcpy(head.magic, moetail::emulator::kImageMagic, sizeof head.magic);
  head.bytes = code.size();
  program->image.assign(reinterpret_cast<const char*>(&head), sizeof head);
  program->image += code;
  return kSuccess;
}
EXPORT int nvrtcGetProgramLogSize(Program* program, std::size_t* size) {
  *size = program->log.size() + 1;
  return kSuccess;
}
EXPORT int nvrtcGetProgramLog(Program* program, char* log) {
  std::memcpy(log, program->log.c_str(), program->log.size() + 1);
  return kSuccess;
}
EXPORT int nvrtcGetCUBINSize(Program* program, std::size_t* size) {
  *size = program->image.size();
  return kSuccess;
}
EXPORT int nvrtcGetCUBIN(Program* program, char* image) {
  std::memcpy(image, program->image.data(), program->image.size());
  return kSuccess;
}
EXPORT int nvrtcGetPTXSize(Program*, std::size_t* size) {
  *size = 1;
  return kSuccess;
}
EXPORT int nvrtcGetPTX(Program*, char* text) {
  *text = '\0';
  return kSuccess;
}

}  // extern "C"
