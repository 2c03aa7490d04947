// SPDX-License-Identifier: Apache-2.0
// What the runtime asks of an engine: streams, boxes, and the launches of a checked call. One implementation a folder beside this
// file. docs/cuda-engine.md, "Two engines behind one set of checks".
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/call.hpp"
#include "protocol/fault.hpp"
#include "protocol/mailbox.hpp"
#include "protocol/targets.hpp"

namespace moetail::engine {

enum class Kind { cpu, cuda };
enum class StreamRole { main, side };

/// A rank's work in order.
class Stream {
 public:
  virtual ~Stream() = default;
  /// Host work, after everything enqueued before it.
  virtual void call(std::function<void()> work) = 0;
  /// Lets this stream wait, in order, for all that is enqueued on `other`, a stream of the same group, now.
  virtual void join(Stream& other) = 0;
  /// Returns when everything enqueued so far has run; throws what any of it left.
  virtual void synchronize() = 0;
  /// The same, but leaves what was thrown for the next synchronize.
  virtual void drain() noexcept = 0;
  /// In order, between any two places that the engine's launches or the host can address.
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  /// For messages: "rank0.main".
  virtual const std::string& name() const = 0;
  /// What users' own kernels are launched on; null where there is none.
  virtual void* native() const { return nullptr; }
  /// Whether what is enqueued becomes part of a graph instead of running.
  virtual bool is_capturing() const { return false; }
};

/// What a rank sends in a call, in host memory.
struct SentRows {
  const u16* partial = nullptr;  ///< [B, L]: its finalized partial
  const u16* shared = nullptr;   ///< [B, H]
};

/// One rank's box: its memory, and the launches that concern no other rank of this process.
class Box {
 public:
  explicit Box(Kind kind) : kind_(kind) {}
  virtual ~Box() = default;
  Box(const Box&) = delete;
  Box& operator=(const Box&) = delete;

  Kind kind() const { return kind_; }
  virtual const protocol::BoxView& view() const = 0;
  /// What a user's kernel needs besides the view.
  virtual protocol::LaunchLink link() const { return {}; }
  /// Fills mailboxes with the sentinel, clears control words, fault and stop. Only while nothing of any rank's box runs, and of all
  /// ranks before any of them runs again. Returns when it is done.
  virtual void arm() = 0;
  /// From any thread, at any time.
  virtual std::optional<protocol::FaultRecord> fault() const = 0;
  /// Ends the waits of a running call. From any thread, at any time.
  virtual void abort() = 0;

  /// Throws Code::invalid_argument for memory that this box's launches cannot address. `name` is the argument's.
  virtual void check_address(const char* name, const void* address) const = 0;

  /// Makes ready all kernels that serve calls like this one, of which only the numbers and which pointers are null are read. Returns their
  /// number.
  virtual int warm_up(const TailCall& call) = 0;

  /// Replay only: fills the mailboxes with what each of all `ranks` sends in calls of this batch and mode. It stays there until arm.
  virtual void fill_peers(int batch, Mode mode, std::span<const SentRows> ranks) = 0;

  /// Whatever could be refused of a push is refused here; nothing is enqueued. `main`: the stream that it is forked from.
  virtual void prepare_push(const Stream& main, const TailCall& call) {
    static_cast<void>(main), static_cast<void>(call);
  }
  /// The shared partial's shards and this rank's header to their readers.
  virtual void push(Stream& stream, const TailCall& call) = 0;
  /// Plays the experts' epilogue: finalizes this rank's rows and publishes them.
  virtual void publish(Stream& stream, const TailCall& call) = 0;
  /// The same for rows [B, L] that are finalized already, by the struct that a user's own kernel would get.
  virtual void publish_rows(Stream& stream, const PublishTargets& targets, const u16* rows) = 0;
  /// Plays front_poll's producers: fills G and W, and S where `call.polls_shared`.
  virtual void fill(Stream& stream, const TailCall& call) = 0;
  /// Copies the output rows to `destination` [batch, H] and re-arms them; NaN rows on a faulted box.
  virtual void take(Stream& stream, int batch, u16* destination) = 0;

 private:
  const Kind kind_;
};

/// One rank's part of a tail.
struct RankTail {
  Box* box = nullptr;
  Stream* stream = nullptr;
  TailCall call;
};

/// The ranks of a world that live in this process.
class Group {
 public:
  virtual ~Group() = default;
  virtual Kind kind() const = 0;
  virtual std::unique_ptr<Stream> make_stream(int rank, StreamRole role) = 0;
  /// One box for each rank of this process, armed. Throws Code::resource.
  virtual std::vector<std::unique_ptr<Box>> make_boxes(const protocol::Shape& shape) = 0;
  /// Whatever could be refused of these tails, and of the publish and fill that go with them, is refused here; nothing is enqueued.
  virtual void prepare(std::span<const RankTail> tails) = 0;
  /// Whether a tail of a call in one launch pushes and publishes by itself; else both are launched in front of it.
  virtual bool has_one_launch() const { return false; }
  /// Enqueues front, front_poll or wave of all ranks: the one launch in which ranks wait for each other.
  virtual void tail(std::span<const RankTail> tails) = 0;
  /// Memory that the launches of `rank` can address, 256-byte aligned, not initialized. Throws Code::resource.
  virtual std::shared_ptr<void> allocate(int rank, std::size_t bytes) = 0;
  /// Hands what launches have recorded since the last time to the world's trace. Only while nothing runs.
  virtual void collect_trace() {}
};

}  // namespace moetail::engine
