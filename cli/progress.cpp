// SPDX-License-Identifier: Apache-2.0
// Drawing of the progress bar and of its plain-line substitute.
#include "cli/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace moetail::cli {
namespace {

constexpr int kBarColumns = 30;
constexpr double kRedrawSeconds = 0.1;
constexpr double kTellSeconds = 10.0;

}  // namespace

Progress::Progress(bool quiet, std::FILE* out)
    : out_(out), quiet_(quiet), terminal_(isatty(fileno(out)) != 0) {}

Progress::~Progress() {
  if (!quiet_ && terminal_ && total_ != 0) erase_bar();
}

double Progress::seconds_since(Clock::time_point start) const {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void Progress::begin(std::string what, std::uint64_t total) {
  end();
  what_ = std::move(what);
  total_ = std::max<std::uint64_t>(total, 1);
  done_ = 0;
  started_ = told_ = Clock::now();
  if (!quiet_ && terminal_) draw_bar();
}

void Progress::advance(std::uint64_t units) {
  done_ = std::min(total_, done_ + units);
  if (quiet_ || done_ == total_ || seconds_since(told_) < (terminal_ ? kRedrawSeconds : kTellSeconds)) return;
  told_ = Clock::now();
  if (terminal_) return draw_bar();
  fmt::print(out_, "{}: {} of {}\n", what_, done_, total_);
  std::fflush(out_);
}

void Progress::end() {
  const bool running = std::exchange(total_, 0) != 0;
  if (quiet_ || !running) return;
  if (terminal_) return erase_bar();
  fmt::print(out_, "{}: done in {:.1f} s\n", what_, seconds_since(started_));
  std::fflush(out_);
}

void Progress::erase_bar() {
  fmt::print(out_, "\r\x1b[K");
  std::fflush(out_);
}

void Progress::draw_bar() {
  const int filled = static_cast<int>(done_ * kBarColumns / total_);
  fmt::print(out_, "\r\x1b[K[{:#>{}}{:.>{}}] {:3}% {}", "", filled, "", kBarColumns - filled,
             done_ * 100 / total_, what_);
  std::fflush(out_);
}

}  // namespace moetail::cli
