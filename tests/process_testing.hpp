// SPDX-License-Identifier: Apache-2.0
// What the tests named processes_* expect of the answers of a team.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/harness.hpp"
#include "tests/process_team.hpp"
#include "tests/record.hpp"
#include "tests/sanitized.hpp"
#include "tests/variants.hpp"

namespace moetail::testing {

using nlohmann::json;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using build::kSanitized;
using ::testing::HasSubstr;

inline constexpr const char* kRankProgram = MOETAIL_PROCESS_RANK;

inline std::string hex_of(const std::vector<Bf16>& rows) {
  std::string text;
  for (const Bf16 value : rows) text += fmt::format("{:04x}", value);
  return text;
}

/// An answer for a message: without its rows.
inline std::string brief(json answer) {
  answer.erase("rows");
  return answer.dump();
}

/// What ranks of one process make of the call that call_order(mode, batch) orders.
inline std::string reference_rows(const Shape& shape, int batch, Mode mode) {
  Harness reference(shape);
  CallOptions options;
  options.mode = mode;
  return hex_of(reference.check(batch, options));
}

inline void expect_rows(const std::vector<json>& answers, const std::string& expected) {
  for (std::size_t rank = 0; rank < answers.size(); ++rank) {
    ASSERT_FALSE(answers[rank].contains("error")) << "rank " << rank << ": " << brief(answers[rank]);
    EXPECT_EQ(answers[rank].value("rows", ""), expected) << "rank " << rank;
  }
}

inline void expect_well(const std::vector<json>& answers) {
  for (std::size_t rank = 0; rank < answers.size(); ++rank) {
    EXPECT_FALSE(answers[rank].contains("error") || answers[rank].contains("gone") ||
                 answers[rank].contains("late"))
        << "rank " << rank << ": " << brief(answers[rank]);
  }
}

inline void expect_errors(const std::vector<json>& answers, Code code,
                          const std::vector<std::string>& parts) {
  for (std::size_t rank = 0; rank < answers.size(); ++rank) {
    SCOPED_TRACE(fmt::format("rank {}: {}", rank, brief(answers[rank])));
    EXPECT_EQ(answers[rank].value("code", 0), static_cast<int>(code));
    for (const std::string& part : parts) EXPECT_THAT(answers[rank].value("error", ""), HasSubstr(part));
  }
}

}  // namespace moetail::testing
