// SPDX-License-Identifier: Apache-2.0
#include "verify/explore/search.hpp"

#include <algorithm>
#include <chrono>

#include "verify/explore/graph_machine.hpp"

namespace moetail::explore {
namespace {

using Clock = std::chrono::steady_clock;

class Search {
 public:
  Search(const Program& program, bool ordered_add, const SearchLimits& limits)
      : program_(program), limits_(limits) {
    options_.ordered_add = ordered_add;
  }

  SearchResult run() {
    bool all = walk();
    const std::set<Look> raced = missed_;
    // A look that raced is made again, late, so that it can see every value that it may see. Where none raced, all executions
    // have been seen; where some did, those with one late look each, but not every mixture.
    for (auto look = raced.begin(); all && look != raced.end(); ++look) {
      options_.late_looks = {*look};
      all = walk();
    }
    result_.late_looks = static_cast<int>(raced.size());
    result_.complete = all && raced.empty();
    result_.seconds = seconds();
    return result_;
  }

 private:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  /// True where all executions were looked at and none has a violation.
  bool walk() {
    Decisions decisions;
    do {
      GraphMachine machine(program_, decisions, options_);
      machine.run();
      ++result_.executions;
      result_.states += machine.num_new_events();
      result_.depth = std::max(result_.depth, machine.num_events());
      missed_.insert(machine.missed().begin(), machine.missed().end());
      if (machine.violation()) {
        result_.violation = machine.violation();
        result_.trace = machine.trace();
        return false;
      }
      if (!decisions.advance()) return true;
    } while (result_.executions < limits_.executions && seconds() < limits_.seconds);
    return false;
  }

  const Program& program_;
  const SearchLimits& limits_;
  const Clock::time_point begin_ = Clock::now();
  GraphOptions options_;
  std::set<Look> missed_;
  SearchResult result_;
};

}  // namespace

SearchResult search(const Program& program, bool ordered_add, const SearchLimits& limits) {
  return Search(program, ordered_add, limits).run();
}

}  // namespace moetail::explore
