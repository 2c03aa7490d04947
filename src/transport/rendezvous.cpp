// SPDX-License-Identifier: Apache-2.0
#include "transport/rendezvous.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "base/futex.hpp"
#include "protocol/shape.hpp"
#include "transport/process_id.hpp"

namespace moetail::transport {

using protocol::u32;
using protocol::u64;

inline constexpr std::size_t kLongestReason = 768;
inline constexpr std::size_t kLongestStep = 64;

/// A seat of a session.
enum Seat : u32 { kFree, kTaken, kSeated, kLeft };
enum Cancel : u32 { kOpen, kWriting, kCancelled };

/// Text of limited length in memory that another process may have written.
template <std::size_t kSize>
struct SessionText {
  char bytes[kSize];

  void set(std::string_view text) {
    const std::size_t length = std::min(text.size(), kSize - 1);
    std::memcpy(bytes, text.data(), length);
    bytes[length] = '\0';
  }
  std::string get() const { return {bytes, strnlen(bytes, kSize)}; }
};

struct SessionLetter {
  SessionText<kLongestStep> step;
  SessionText<kLongestReason> reason;
  u32 code;
  u32 data_bytes;
  char data[Rendezvous::kLongestData];
};

struct SessionChair {
  std::atomic<u32> seat;
  std::atomic<u32> round;  ///< how many letters this rank has left
  ProcessId process;       ///< valid once seated
  // Letters of odd and even rounds: nobody leaves one of round n + 2 before all have read those of round n, because they leave theirs
  // of n + 1 after that.
  SessionLetter letters[2];
};

namespace {

constexpr u64 kMagic = 0x6d6f657461696c31;  // "moetail1"
// A waiter looks this often whether its peers live, even if nobody rings.
constexpr std::chrono::milliseconds kLookEvery{20};
std::string rank_text(int rank, const SessionChair& chair) {
  if (chair.seat.load(std::memory_order_acquire) < kSeated) return fmt::format("rank {}", rank);
  return fmt::format("rank {} (process {})", rank, chair.process.pid);
}

}  // namespace

struct SessionBlock {
  std::atomic<u64> magic;
  u32 ranks;
  std::atomic<u32> bell;  ///< counts whatever a waiter may want to see
  std::atomic<u32> cancel;
  SessionText<kLongestReason> reason;
  SessionChair chairs[protocol::kMaxRanks];

  void ring() {
    bell.fetch_add(1, std::memory_order_acq_rel);
    base::futex_wake_all(reinterpret_cast<std::uint32_t*>(&bell));
  }
  void cancel_for(const std::string& why) {
    u32 open = kOpen;
    if (cancel.compare_exchange_strong(open, kWriting, std::memory_order_acq_rel)) {
      reason.set(why);
      cancel.store(kCancelled, std::memory_order_release);
    }
    ring();
  }
};
static_assert(std::atomic<u32>::is_always_lock_free && sizeof(std::atomic<u32>) == sizeof(u32));

Session::Session(int ranks) : segment_(SharedSegment::create(sizeof(SessionBlock))) {
  auto& block = *new (segment_.data()) SessionBlock{};
  block.ranks = static_cast<u32>(ranks);
  block.magic.store(kMagic, std::memory_order_release);
}

Session::~Session() = default;

void Session::cancel(const std::string& reason) {
  static_cast<SessionBlock*>(segment_.data())->cancel_for(reason);
}

Outcome current_failure() {
  try {
    throw;
  } catch (const Error& error) {
    return {error.code(), error.what()};
  } catch (const std::bad_alloc&) {
    return {Code::resource, "out of memory"};
  } catch (const std::exception& error) {
    return {Code::internal, error.what()};
  } catch (...) {
    return {Code::internal, "an exception that is no std::exception"};
  }
}

Rendezvous::Rendezvous(const std::string& token, int rank, int ranks, std::chrono::milliseconds deadline)
    : rank_(rank),
      ranks_(ranks),
      deadline_(deadline),
      segment_(SharedSegment::open(token, sizeof(SessionBlock))) {
  SessionBlock& here = block();
  if (here.magic.load(std::memory_order_acquire) != kMagic)
    base::fail(Code::fault, "session {}: not a session of this version of moetail", token);
  throw_if_cancelled();
  if (here.ranks != static_cast<u32>(ranks)) {
    const std::string reason = fmt::format("rank {}: ranks = {}: accepted is {}, as the session was made for",
                                           rank, ranks, here.ranks);
    here.cancel_for(reason);
    throw Error(Code::invalid_argument, reason);
  }
  SessionChair& chair = here.chairs[rank];
  u32 is_free = kFree;
  if (!chair.seat.compare_exchange_strong(is_free, kTaken, std::memory_order_acq_rel))
    base::bad_argument("rank", rank,
                       fmt::format("one that nobody has; {} {}", rank_text(rank, chair),
                                   is_free == kLeft ? "had it and left: a new session is needed" : "has it"));
  chair.process = this_process();
  chair.seat.store(kSeated, std::memory_order_release);
  here.ring();
}

Rendezvous::~Rendezvous() {
  block().chairs[rank_].seat.store(kLeft, std::memory_order_release);
  block().ring();
}

SessionBlock& Rendezvous::block() const {
  return *static_cast<SessionBlock*>(segment_.data());
}

void Rendezvous::throw_if_cancelled() const {
  const SessionBlock& here = block();
  if (here.cancel.load(std::memory_order_acquire) == kCancelled) throw Error(Code::fault, here.reason.get());
}

void Rendezvous::fail_for_all(const std::string& reason) const {
  block().cancel_for(reason);
  throw_if_cancelled();  // the first reason, which may be another rank's
  throw Error(Code::fault, reason);
}

std::vector<std::string> Rendezvous::gather(const std::string& step, const std::string& data,
                                            const Outcome& outcome) {
  if (data.size() > kLongestData)
    base::fail(Code::internal, "rendezvous: {} bytes of data at {}: accepted is {}", data.size(), step,
               kLongestData);
  SessionBlock& here = block();
  throw_if_cancelled();
  const unsigned round = ++round_;
  SessionChair& mine = here.chairs[rank_];
  SessionLetter& letter = mine.letters[round % 2];
  letter.step.set(step);
  letter.reason.set(outcome.reason);
  letter.code = static_cast<u32>(outcome.code);
  letter.data_bytes = static_cast<u32>(data.size());
  std::copy(data.begin(), data.end(), letter.data);
  mine.round.store(round, std::memory_order_release);
  here.ring();
  wait_for_all(step, round);

  std::vector<std::string> all;
  const std::string first_step = here.chairs[0].letters[round % 2].step.get();
  for (int rank = 0; rank < ranks_; ++rank) {
    const SessionLetter& theirs = here.chairs[rank].letters[round % 2];
    if (const std::string their_step = theirs.step.get(); their_step != first_step)
      base::fail(Code::call_order, "ranks 0 and {} disagree: {} is at {}, {} at {}", rank,
                 rank_text(0, here.chairs[0]), first_step, rank_text(rank, here.chairs[rank]), their_step);
    all.emplace_back(theirs.data, std::min<std::size_t>(theirs.data_bytes, kLongestData));
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    const SessionLetter& theirs = here.chairs[rank].letters[round % 2];
    if (theirs.code != static_cast<u32>(Code::ok))
      throw Error(static_cast<Code>(theirs.code),
                  fmt::format("rank {} of {}: {}: {}", rank, ranks_, step, theirs.reason.get()));
  }
  return all;
}

void Rendezvous::wait_for_all(const std::string& step, unsigned round) const {
  SessionBlock& here = block();
  const auto end = std::chrono::steady_clock::now() + deadline_;
  while (true) {
    const u32 bell = here.bell.load(std::memory_order_acquire);
    int missing = -1;
    for (int rank = 0; rank < ranks_ && missing < 0; ++rank)
      if (here.chairs[rank].round.load(std::memory_order_acquire) < round) missing = rank;
    if (missing < 0) return;
    throw_if_cancelled();
    for (int rank = missing; rank < ranks_; ++rank) check_peer(rank, step, round);
    const auto now = std::chrono::steady_clock::now();
    if (now >= end)
      fail_for_all(fmt::format("{} {} within {:.3f} s, where rank {} waits",
                               rank_text(missing, here.chairs[missing]),
                               here.chairs[missing].seat.load(std::memory_order_acquire) == kFree
                                   ? std::string("did not join")
                                   : fmt::format("did not come to {}", step),
                               std::chrono::duration<double>(deadline_).count(), rank_));
    base::futex_wait(reinterpret_cast<std::uint32_t*>(&here.bell), bell,
                     std::min<std::chrono::nanoseconds>(end - now, kLookEvery));
  }
}

void Rendezvous::check_peer(int peer, const std::string& step, unsigned round) const {
  const SessionChair& chair = block().chairs[peer];
  const u32 seat = chair.seat.load(std::memory_order_acquire);
  const bool left = seat == kLeft;
  if (!left && (seat != kSeated || !is_gone(chair.process))) return;
  // Whoever left its letter first and then went has done its part of this round.
  if (chair.round.load(std::memory_order_acquire) >= round) return;
  fail_for_all(fmt::format("{} {} before it came to {}, where rank {} waits", rank_text(peer, chair),
                           left ? "left" : "died", step, rank_));
}

}  // namespace moetail::transport
