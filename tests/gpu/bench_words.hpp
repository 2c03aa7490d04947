// SPDX-License-Identifier: Apache-2.0
// What the command line asks of timings: "T8" and "B16" pick rank counts and batches, the other words a mode (main.cpp has the list).
#pragma once

#include <utility>

#include "tests/gpu/rig.hpp"

namespace moetail::gpu {

class BenchWords {
 public:
  explicit BenchWords(std::vector<std::string> words);
  /// Whether `word` is one of these, which pick no case.
  static bool knows(const std::string& word);

  /// (T, B): by default every batch at T = 8, and 1 and 8 at the others.
  std::vector<std::pair<int, int>> configurations() const;
  /// Front unless a word says otherwise, multicast put.
  Call call(int batch) const;
  /// Two copies of the expert rows where both lie in a quarter of the L2, else one.
  int row_copies(const Gpu& gpu, const Call& call, const Shape& shape) const;

 private:
  bool has(const std::string& word) const;
  std::vector<int> numbers(char letter) const;

  std::vector<std::string> words_;
};

}  // namespace moetail::gpu
