// SPDX-License-Identifier: Apache-2.0
// Expects an Error of one code whose text holds all of some parts: the argument, its value, what is accepted.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace moetail::testing {

inline void expect_error(Code code, const std::vector<std::string>& parts,
                         const std::function<void()>& action) {
  try {
    action();
    ADD_FAILURE() << "no error; expected one with: " << ::testing::PrintToString(parts);
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    for (const std::string& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "\"" << part << "\" is not in: " << error.what();
  }
}

}  // namespace moetail::testing
