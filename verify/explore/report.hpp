// SPDX-License-Identifier: Apache-2.0
// What an explored case says of itself: a JSON line for programs, a line and a trace for people.
#pragma once

#include <string>

#include "verify/explore/cases.hpp"
#include "verify/explore/search.hpp"

namespace moetail::explore {

/// True where the case is what it has to be: a property that holds in all executions, a control that was refuted.
bool is_fulfilled(const Case& explored, const SearchResult& result);

/// {"case": ..., "kind": "property"|"control", "config": "2x2x4", ...}
std::string json_line(const Case& explored, const SearchResult& result, const std::string& trace_file);
std::string text_line(const Case& explored, const SearchResult& result);

/// The steps that led to the violation, and what it is.
std::string trace_text(const Case& explored, const SearchResult& result);

}  // namespace moetail::explore
