// SPDX-License-Identifier: Apache-2.0
// Tells a waiting person how far a run is, on stderr only, so that stdout stays a table.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace moetail::cli {

/// A run has stages, one after the other. On a terminal each stage is a bar that is erased when it ends; elsewhere it is one
/// line when it ends, and one every ten seconds if it takes long. Never draws from another thread, so a stage that measures
/// time calls advance between its measurements.
class Progress {
 public:
  explicit Progress(bool quiet, std::FILE* out = stderr);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Starts a stage of `total` units of work, ending the one before. `what`: a short noun phrase.
  void begin(std::string what, std::uint64_t total);
  void advance(std::uint64_t units = 1);
  /// The stage is complete. A Progress that goes without this erases its bar and says nothing.
  void end();

 private:
  using Clock = std::chrono::steady_clock;

  void draw_bar();
  void erase_bar();
  double seconds_since(Clock::time_point start) const;

  std::FILE* out_;
  bool quiet_;
  bool terminal_;
  std::string what_;
  std::uint64_t total_ = 0;  ///< 0: no stage is running
  std::uint64_t done_ = 0;
  Clock::time_point started_;
  Clock::time_point told_;
};

}  // namespace moetail::cli
