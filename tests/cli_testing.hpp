// SPDX-License-Identifier: Apache-2.0
// Running the command `moetail` in tests: exit code, what it wrote, and small shapes that run in milliseconds.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/io_testing.hpp"
#include "tests/sanitized.hpp"

namespace moetail::cli_testing {

using build::kSanitized;
using io_testing::read_file;
using io_testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string err;

  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

/// Given ceilings save each run the second that measuring them takes.
inline const std::string kGivenCeilings = "MOETAIL_CEILINGS=20,1000";

/// Runs `moetail ARGUMENTS` through the shell. `environment`: assignments before it.
inline Outcome moetail(const std::string& arguments, const std::string& environment = kGivenCeilings) {
  const TempDir scratch;
  const std::string out = (scratch / "out").string(), err = (scratch / "err").string();
  // The tests are of the CPU engine, on a machine with a GPU too.
  const std::string line = "MOETAIL_CUDA_DRIVER=libmoetail-no-such-driver.so.1 " + environment +
                           " '" MOETAIL_CLI "' " + arguments + " >'" + out + "' 2>'" + err + "' </dev/null";
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out), read_file(err)};
}

/// Why the emulated GPU does not run in a build with a sanitizer.
inline constexpr const char* kNoEmulatedGpu =
    "the emulated GPU's fibers jump from stack to stack, and a sanitizer clears a stack at each jump";

/// Flags of a shape that every T and mode serves, and of a run that is over at once.
inline const std::string kSmallShape = "--hidden 256 --latent 128 --top-k 4 --capacity 32 ";
inline const std::string kSmallRun = kSmallShape + "--layers 2 --steps 3 --quiet ";

/// The one result of a run whose JSON went to stdout.
inline nlohmann::json only_result(const Outcome& outcome) {
  const nlohmann::json results = outcome.json().at("results");
  EXPECT_EQ(results.size(), 1u);
  return results.at(0);
}

}  // namespace moetail::cli_testing
