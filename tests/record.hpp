// SPDX-License-Identifier: Apache-2.0
// What a test of a fault or of hostile input tells tools/reliability.py, which makes the table of docs/reliability.md of it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace moetail::testing {

/// The engine of a record.
inline constexpr const char* kThreads = "cpu threads";
inline constexpr const char* kProcesses = "cpu processes";
inline constexpr const char* kHost = "host";  ///< no engine runs: files, arguments, the cache

/// One row's part: `fault` names the row, `tries` is how often it was tried, `outcome` what happened. Call it last: a test that has failed
/// before has no outcome.
inline void record_fault(const std::string& fault, const std::string& engine, std::uint64_t tries,
                         const std::string& outcome) {
  ::testing::Test::RecordProperty("fault", fault);
  ::testing::Test::RecordProperty("engine", engine);
  ::testing::Test::RecordProperty("tries", std::to_string(tries));
  ::testing::Test::RecordProperty("outcome", outcome);
}

/// Whether every pattern and every site is wanted, as `make reliability` does, or a selection that keeps `make test` short.
inline bool is_thorough() {
  return std::getenv("MOETAIL_TEST_THOROUGH") != nullptr;
}

}  // namespace moetail::testing
