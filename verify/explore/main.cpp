// SPDX-License-Identifier: Apache-2.0
// The program moetail_explore: explores cases, prints a JSON line of each to stdout and one for people to stderr. A case without a
// safeguard belongs to the program beside it that is built without (explore_without_NAME), which is called for it.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <set>

#include "verify/explore/model.hpp"
#include "verify/explore/report.hpp"

namespace moetail::explore {
namespace {

namespace fs = std::filesystem;

struct Options {
  bool list = false;
  bool all = false;
  bool small = false;
  std::vector<std::string> names;
  std::string traces;
  SearchLimits limits;
};

fs::path own_folder() {
  return fs::read_symlink("/proc/self/exe").parent_path();
}

std::string write_trace(const Options& options, const Case& explored, const SearchResult& result) {
  if (!result.violation) return "";
  fs::create_directories(options.traces);
  const fs::path file = fs::path(options.traces) / (explored.name + ".txt");
  std::ofstream out(file);
  out << trace_text(explored, result);
  out.close();
  if (!out) throw std::runtime_error(fmt::format("{}: cannot be written", file.string()));
  return file.string();
}

bool explore(const Options& options, const Case& explored) {
  const auto program = make_program(explored.config);
  const SearchResult result = search(*program, explored.config.ordered_add, options.limits);
  const std::string file = write_trace(options, explored, result);
  fmt::print("{}\n", json_line(explored, result, file));
  std::fflush(stdout);
  fmt::print(stderr, "{}\n", text_line(explored, result));
  return is_fulfilled(explored, result);
}

/// Lets the program built without `safeguard` explore `names`.
bool delegate(const Options& options, const std::string& safeguard, const std::vector<std::string>& names) {
  const fs::path program = own_folder() / ("explore_without_" + safeguard);
  std::vector<std::string> words = {program.string(),
                                    "--traces",
                                    options.traces,
                                    "--executions",
                                    std::to_string(options.limits.executions),
                                    "--seconds",
                                    fmt::format("{}", options.limits.seconds)};
  for (const std::string& name : names) words.insert(words.end(), {"--case", name});
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error(fmt::format("fork: {}", std::strerror(errno)));
  if (child == 0) {
    execv(program.c_str(), arguments.data());
    fmt::print(stderr, "{}: {}: accepted is the program that this build makes of that name\n",
               program.string(), std::strerror(errno));
    _exit(2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::vector<Case> chosen(const Options& options) {
  std::vector<Case> cases = all_cases();
  const std::string mine = missing_safeguard();
  if (!mine.empty()) std::erase_if(cases, [&](const Case& c) { return c.safeguard != mine; });
  if (options.small) std::erase_if(cases, [](const Case& c) { return c.is_large; });
  for (const std::string& name : options.names)
    if (std::none_of(cases.begin(), cases.end(), [&](const Case& c) { return c.name == name; }))
      throw std::invalid_argument(fmt::format("--case {}: accepted is a name that --list prints", name));
  const std::set<std::string> names(options.names.begin(), options.names.end());
  if (!names.empty()) std::erase_if(cases, [&](const Case& c) { return names.count(c.name) == 0; });
  return cases;
}

int run(const Options& options) {
  const std::vector<Case> cases = chosen(options);
  if (options.list) {
    for (const Case& c : cases)
      fmt::print("{} {} {}{}\n", c.name, c.is_control() ? "control" : "property", c.config.size(),
                 c.is_large ? " large" : "");
    return 0;
  }
  if (!options.all && !options.small && options.names.empty())
    throw std::invalid_argument("nothing to explore: accepted is --all, --small or --case NAME");
  bool fulfilled = true;
  std::vector<std::pair<std::string, std::vector<std::string>>> others;
  for (const Case& c : cases) {
    if (c.safeguard == missing_safeguard()) {
      fulfilled &= explore(options, c);
    } else {
      if (others.empty() || others.back().first != c.safeguard) others.push_back({c.safeguard, {}});
      others.back().second.push_back(c.name);
    }
  }
  for (const auto& [safeguard, names] : others) fulfilled &= delegate(options, safeguard, names);
  return fulfilled ? 0 : 1;
}

int run(int argc, char** argv) {
  try {
    CLI::App app("Runs the headers of src/protocol in every execution of small configurations");
    Options options;
    options.traces = (own_folder().parent_path() / "explore_traces").string();
    app.add_flag("--list", options.list, "print every case: its name, its kind, ranks x blocks x calls");
    app.add_flag("--all", options.all, "explore every case");
    app.add_flag("--small", options.small, "explore every case that takes seconds");
    app.add_option("--case", options.names, "explore this case; may be given several times")
        ->type_name("NAME");
    app.add_option("--traces", options.traces, "where the traces of refuted cases go")
        ->type_name("DIR")
        ->capture_default_str();
    app.add_option("--executions", options.limits.executions,
                   "a case that needs more is cut short, and fails")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--seconds", options.limits.seconds, "likewise")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.footer(
        "Exit status: 0 all as they have to be, 1 a property failed, a control was not refuted or a search "
        "was cut\n"
        "short, 2 bad usage.");
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      return app.exit(error) == 0 ? 0 : 2;
    }
    return run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "moetail_explore: {}\n", error.what());
    return 2;
  }
}

}  // namespace
}  // namespace moetail::explore

int main(int argc, char** argv) {
  return moetail::explore::run(argc, argv);
}
