// SPDX-License-Identifier: Apache-2.0
// A set of events of one execution: what is known to have happened.
#pragma once

#include <cstddef>
#include <vector>

#include "protocol/words.hpp"

namespace moetail::explore {

/// The event that wrote what every word holds before the first call. It is in every set.
inline constexpr int kInitialEvent = -1;

class EventSet {
 public:
  bool has(int event) const {
    if (event == kInitialEvent) return true;
    const auto word = static_cast<std::size_t>(event) / 64;
    return word < words_.size() && (words_[word] >> (event % 64) & 1u) != 0;
  }
  void add(int event) {
    if (event == kInitialEvent) return;
    const auto word = static_cast<std::size_t>(event) / 64;
    if (word >= words_.size()) words_.resize(word + 1);
    words_[word] |= protocol::u64{1} << (event % 64);
  }
  void join(const EventSet& other) {
    if (other.words_.size() > words_.size()) words_.resize(other.words_.size());
    for (std::size_t i = 0; i < other.words_.size(); ++i) words_[i] |= other.words_[i];
  }

 private:
  std::vector<protocol::u64> words_;
};

}  // namespace moetail::explore
