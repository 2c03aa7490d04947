// SPDX-License-Identifier: Apache-2.0
// The choices of one execution, and the next execution's: a depth-first walk over all of them by running again from the start.
#pragma once

#include <cstddef>
#include <vector>

namespace moetail::explore {

class Decisions {
 public:
  /// One of 0 .. options - 1: as decided for this execution, or 0 where nothing is decided yet.
  int choose(int options) {
    if (next_ == made_.size()) made_.push_back({options, 0});
    return made_[next_++].taken;
  }
  /// True once this execution has left the path of the one before it.
  bool is_new() const { return next_ >= fresh_from_; }
  /// The next execution's decisions. False where all were tried.
  bool advance() {
    while (!made_.empty() && made_.back().taken + 1 == made_.back().options) made_.pop_back();
    next_ = 0;
    if (made_.empty()) return false;
    ++made_.back().taken;
    fresh_from_ = made_.size();
    return true;
  }

 private:
  struct Decision {
    int options;
    int taken;
  };
  std::vector<Decision> made_;
  std::size_t next_ = 0;
  std::size_t fresh_from_ = 0;
};

}  // namespace moetail::explore
