// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/bench_words.hpp"

#include <algorithm>
#include <array>

namespace moetail::gpu {
namespace {

constexpr std::array kWays = {"publish", "share", "twoshot", "launches", "fshare"};

bool is_number(const std::string& word) {
  return word.size() > 1 &&
         std::all_of(word.begin() + 1, word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

BenchWords::BenchWords(std::vector<std::string> words) : words_(std::move(words)) {}

bool BenchWords::knows(const std::string& word) {
  return std::find(kWays.begin(), kWays.end(), word) != kWays.end() ||
         ((word[0] == 'B' || word[0] == 'T') && is_number(word));
}

bool BenchWords::has(const std::string& word) const {
  return std::find(words_.begin(), words_.end(), word) != words_.end();
}

std::vector<int> BenchWords::numbers(char letter) const {
  std::vector<int> numbers;
  for (const auto& word : words_)
    if (word[0] == letter && is_number(word)) numbers.push_back(std::stoi(word.substr(1)));
  return numbers;
}

std::vector<std::pair<int, int>> BenchWords::configurations() const {
  auto rank_counts = numbers('T'), batches = numbers('B');
  if (rank_counts.empty()) rank_counts = {8, 16, 4, 2, 1};
  std::vector<std::pair<int, int>> all;
  for (const int ranks : rank_counts) {
    if (!batches.empty())
      for (const int batch : batches) all.emplace_back(ranks, batch);
    else if (ranks == 8)
      for (const int batch : {1, 2, 4, 8, 16, 32, 64, 128}) all.emplace_back(ranks, batch);
    else
      for (const int batch : {1, 8}) all.emplace_back(ranks, batch);
  }
  return all;
}

Call BenchWords::call(int batch) const {
  Call call;
  call.batch = batch;
  call.put = kernels::PutBy::own;
  if (has("publish") || has("share")) call.mode = Mode::publish;
  if (has("twoshot")) call.mode = Mode::twoshot;
  call.shares_reduced = has("share") || has("fshare");
  call.one_launch = call.mode == Mode::twoshot && !has("launches");
  return call;
}

int BenchWords::row_copies(const Gpu& gpu, const Call& call, const Shape& shape) const {
  const std::size_t bytes = static_cast<std::size_t>(call.batch) * shape.top_k * shape.latent * 2;
  return 2 * bytes <= gpu.context->facts().l2_bytes / 4 ? 2 : 1;
}

}  // namespace moetail::gpu
