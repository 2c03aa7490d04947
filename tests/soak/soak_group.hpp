// SPDX-License-Identifier: Apache-2.0
// One group of ranks under soak: a pool of calls whose right rows are known, run in random order without a host that waits, with stalls at
// random sites, and compared bit for bit on every rank.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/harness.hpp"
#include "verify/hash.hpp"

namespace moetail::testing {

/// What the control does to one call: nothing, one bit of one rank's input, or one rank that does not take part.
enum class Plant { none, bit, death };

/// Stalls passes of sites: one in 128 for up to 0.2 ms, one in 8192 for up to 5 ms. A control lets rank 0 die in one call.
class SoakHooks : public cpu::Hooks {
 public:
  explicit SoakHooks(std::uint64_t seed) : seed_(seed) {}
  bool at(const cpu::SiteEvent& event) override;
  std::uint64_t stalls() const { return stalls_.load(); }
  void kill_in_epoch(std::uint64_t epoch) { deadly_epoch_ = epoch; }

 private:
  static constexpr std::uint64_t kNoEpoch = ~std::uint64_t{0};
  const std::uint64_t seed_;
  std::atomic<std::uint64_t> stalls_ = 0;
  std::atomic<std::uint64_t> deadly_epoch_ = kNoEpoch;
};

struct SoakOptions {
  int ranks = 1;
  int threads = 1;          ///< over all ranks
  bool own_copies = false;  ///< of the latents
  std::uint64_t seed = 1;
  std::uint64_t pool = 48;  ///< calls whose rows are known, of which each run is made
  std::chrono::milliseconds deadline{20'000};
};

struct SoakCount {
  std::uint64_t calls = 0;
  std::uint64_t lost = 0;    ///< calls of which a rank's row is not there or has a wrong bit
  std::uint64_t faults = 0;  ///< after each of which the group was recovered
  std::uint64_t stalls = 0;
  std::string first_loss;  ///< what was seen first; "" where nothing was lost
};

class SoakGroup {
 public:
  /// Makes the pool; throws std::runtime_error where a call of it is not as the oracle says.
  explicit SoakGroup(const SoakOptions& options);
  ~SoakGroup();
  SoakGroup(const SoakGroup&) = delete;
  SoakGroup& operator=(const SoakGroup&) = delete;

  /// Runs `calls` calls, each compared; `plant` is for the middle one.
  void run(std::uint64_t calls, Plant plant = Plant::none);
  const SoakCount& count() const { return count_; }

 private:
  struct Entry {
    CallOptions options;
    int batch = 1;
    const verify::CallInputs* inputs = nullptr;
    const verify::CallInputs* spoilt = nullptr;  ///< one bit of one rank's shared partial is another
    std::vector<Bf16> rows;                      ///< [B, H], what every rank must hold
  };
  struct Flight {
    const Entry* entry = nullptr;
    std::uint64_t number = 0;
    Outputs outputs;
  };

  std::uint64_t random() { return verify::mix64(++random_state_); }
  void make_entry();
  void enqueue(Flight& flight, const verify::CallInputs& inputs);
  void judge(std::uint64_t flights);

  SoakHooks hooks_;
  Harness harness_;
  std::uint64_t random_state_;
  std::vector<Entry> pool_;
  std::vector<Flight> flights_;
  SoakCount count_;
};

}  // namespace moetail::testing
