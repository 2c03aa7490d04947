// SPDX-License-Identifier: Apache-2.0
// Stall and fault injection: test hooks that delay a rank at a site, hold it there, or let it die there.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <future>
#include <mutex>
#include <thread>

#include "engine/cpu/hooks.hpp"
#include "moetail/moetail.hpp"
#include "verify/hash.hpp"

namespace moetail::testing {

/// Which passes of a site a hook acts on.
struct Where {
  static constexpr int kAny = -1;
  static constexpr std::uint64_t kAnyEpoch = ~std::uint64_t{0};

  protocol::Site site = protocol::Site::none;
  int rank = kAny;
  int cluster = kAny;
  std::uint64_t epoch = kAnyEpoch;

  bool matches(const cpu::SiteEvent& event) const {
    return event.site == site && (rank == kAny || event.rank == rank) &&
           (cluster == kAny || event.cluster == cluster) && (epoch == kAnyEpoch || event.epoch == epoch);
  }
};

/// Remembers which sites were passed.
class SiteLog : public cpu::Hooks {
 public:
  bool at(const cpu::SiteEvent& event) override {
    sites_.fetch_or(1u << static_cast<unsigned>(event.site));
    return true;
  }
  bool passed(protocol::Site site) const { return (sites_.load() >> static_cast<unsigned>(site) & 1u) != 0; }
  std::uint32_t sites() const { return sites_.load(); }
  void clear() { sites_.store(0); }

 private:
  std::atomic<std::uint32_t> sites_ = 0;
};

/// Stalls every matching pass.
class Stall : public cpu::Hooks {
 public:
  Stall(Where where, std::chrono::milliseconds time) : where_(where), time_(time) {}
  bool at(const cpu::SiteEvent& event) override {
    if (!where_.matches(event)) return true;
    stalls_.fetch_add(1);
    std::this_thread::sleep_for(time_);
    return true;
  }
  int stalls() const { return stalls_.load(); }

 private:
  const Where where_;
  const std::chrono::milliseconds time_;
  std::atomic<int> stalls_ = 0;
};

/// Stalls one pass in four, of all ranks, clusters and sites, by up to `longest`: the same passes for the
/// same seed.
class RandomStalls : public cpu::Hooks {
 public:
  RandomStalls(std::uint64_t seed, std::chrono::microseconds longest) : seed_(seed), longest_(longest) {}
  bool at(const cpu::SiteEvent& event) override {
    const auto place = static_cast<std::uint64_t>(event.rank) << 32 |
                       static_cast<std::uint64_t>(event.cluster) << 16 |
                       static_cast<std::uint64_t>(event.site);
    const std::uint64_t hash = verify::mix64(verify::mix64(seed_ ^ place) + event.epoch);
    if (hash % 4 == 0) {
      stalls_.fetch_add(1);
      std::this_thread::sleep_for(longest_ * static_cast<int>(hash >> 32 & 0xFF) / 255);
    }
    return true;
  }
  int stalls() const { return stalls_.load(); }

 private:
  const std::uint64_t seed_;
  const std::chrono::microseconds longest_;
  std::atomic<int> stalls_ = 0;
};

/// A rank (or one cluster of it) that dies at a site: it returns there and does nothing of what comes later.
class Death : public cpu::Hooks {
 public:
  explicit Death(Where where) : where_(where) {}
  bool at(const cpu::SiteEvent& event) override {
    if (event.rank != where_.rank) return true;
    if (where_.cluster != Where::kAny && event.cluster != where_.cluster) return true;
    if (where_.matches(event)) dead_.store(true);
    return !dead_.load();
  }
  bool happened() const { return dead_.load(); }

 private:
  const Where where_;
  std::atomic<bool> dead_ = false;
};

/// Holds every matching pass until it is opened.
class Gate : public cpu::Hooks {
 public:
  explicit Gate(Where where) : where_(where) {}
  ~Gate() override { open(); }
  bool at(const cpu::SiteEvent& event) override {
    if (!where_.matches(event)) return true;
    std::unique_lock lock(mutex_);
    reached_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
    return true;
  }
  void wait_until_reached() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reached_; });
  }
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  const Where where_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
  bool open_ = false;
};

/// Holds the main streams of a world until it is opened, so that a test can enqueue all it wants before the
/// first launch runs.
class HeldStreams {
 public:
  explicit HeldStreams(const World& world) {
    const std::shared_future<void> opened = open_.get_future().share();
    for (int rank = 0; rank < world.local_ranks(); ++rank)
      world.main_stream(rank).launch([opened] { opened.wait(); });
  }
  ~HeldStreams() { open(); }
  void open() {
    if (!opened_) open_.set_value();
    opened_ = true;
  }

 private:
  std::promise<void> open_;
  bool opened_ = false;
};

}  // namespace moetail::testing
