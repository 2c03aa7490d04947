// SPDX-License-Identifier: Apache-2.0
// The C++ door of moetail: worlds of ranks, their mailboxes (TailBox), a layer's weights (TailWeights) and
// its prepared tail (PreparedTail). docs/integration.md walks through one decode step; docs/protocol.md says
// why it is safe.
//
// Every call is stream-ordered: it checks its arguments, enqueues work and returns. Buffers passed to a call
// must stay valid and unchanged until the stream has passed it (World::synchronize, or a take that has
// completed). Every function throws moetail::Error; nothing is enqueued and no state changes when it does.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/trace.hpp"
#include "protocol/fault.hpp"
#include "protocol/mode.hpp"
#include "protocol/shape.hpp"

namespace moetail {

using Bf16 = std::uint16_t;  ///< the bits of a bf16 number
using Shape = protocol::Shape;

enum class Engine : int { automatic = 0, cpu = 1, cuda = 2 };

/// How what every rank gets whole leaves a rank: one store that reaches all of them, or a store to each.
enum class Put : int { automatic = 0, multicast = 1, unicast = 2 };

struct Policy;
class World;
class TailBox;
class TailWeights;
class PreparedTail;

/// Work of one rank in order. On the CPU engine a stream is a queue served by a thread of its own, on the CUDA engine a CUDA stream,
/// which ranks of one GPU share.
class Stream {
 public:
  Stream() = default;
  /// Runs `work` on this stream after everything enqueued before it: where a user's own producers and
  /// consumers go. On the CUDA engine `work` is host code and must not call CUDA.
  void launch(std::function<void()> work) const;
  /// Returns when everything enqueued so far has run. Throws the first Error that a launch threw, or
  /// Code::fault where it was another exception.
  void synchronize() const;
  /// Waits (in stream order, the host does not wait) until `other` has run everything enqueued on it so far.
  void join(const Stream& other) const;
  /// Copies in order, between any two of host memory and RankBuffers of the same world. What is copied must stay valid and unchanged
  /// until it has run.
  void copy(void* to, const void* from, std::size_t bytes) const;
  /// The engine's own stream: a cudaStream_t on the CUDA engine, where kernels of the user's and captures go; null on the CPU engine.
  /// Valid as long as the world. While it is capturing, calls of this library become part of the graph, and those that cannot (host work,
  /// waits, a kernel that is not warm) are Code::call_order.
  void* native() const;
  explicit operator bool() const { return impl_ != nullptr; }

  struct Impl;
  explicit Stream(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

/// The four forms of a call's routed input. Sizes are counted in elements; spans may be longer than needed,
/// never shorter, and start 16-byte aligned (map and weights: aligned for their element).
struct Routed {
  Form form = Form::published;
  std::span<const Bf16> rows;           ///< expanded: [B*K, L]; permuted: [P, L], P = rows.size() / L
  std::span<const std::int32_t> map;    ///< permuted: [B, K], negative = dropped route
  std::span<const Bf16> weights_bf16;   ///< [B, K], or
  std::span<const float> weights_fp32;  ///< [B, K]
  std::span<const Bf16> partial;        ///< partial: [B, L]

  static Routed expanded(std::span<const Bf16> rows, std::span<const Bf16> weights);
  static Routed expanded(std::span<const Bf16> rows, std::span<const float> weights);
  static Routed permuted(std::span<const Bf16> rows, std::span<const std::int32_t> map,
                         std::span<const Bf16> weights);
  static Routed permuted(std::span<const Bf16> rows, std::span<const std::int32_t> map,
                         std::span<const float> weights);
  static Routed finalized(std::span<const Bf16> partial);
  /// The user's own kernel delivers: into the mailboxes (publish, twoshot) or into the polled slots
  /// (front_poll).
  static Routed published();
};

/// One rank's call of one layer's tail.
struct Call {
  int batch = 0;  ///< B; 0 on all ranks is a call that does nothing and leaves the epoch alone
  Routed routed;
  std::span<const Bf16> shared;    ///< [B, H]; may be empty where push or the polled slots deliver it
  std::span<const Bf16> residual;  ///< [B, H], added in fp32 before the one rounding; empty: none
  Mode mode = Mode::automatic;
  Stream stream;  ///< empty: the rank's main stream
  /// Publish and twoshot mode on a GPU: the tail may start, poll and publish before the kernel in front of it on the stream, the producer,
  /// is complete. That kernel has to pass its own dependency wait before it triggers. Nothing else changes where there is no dependent
  /// launch.
  bool early = false;
};

/// The output rows of the latest call, where they lie in the mailbox: [B, H] bf16. It names its call;
/// consumers accept only the latest one. The rows may still be arriving: `TailBox::take` and `consume_row`
/// poll them.
struct OutView {
  const Bf16* data = nullptr;
  int batch = 0;
  int hidden = 0;
  int rank = 0;
  std::uint64_t call =
      0;  ///< 1 for the first call of a box; 0: a call with B = 0, there is nothing to consume
  const void* box = nullptr;
};

/// What a user's expert kernel needs to publish its partial rows itself (publish and twoshot modes). By
/// value.
struct PublishTargets;
/// What a user's expert kernel needs to fill the polled slots G, W and S (front_poll mode). By value.
struct PollSlots;
/// What a user's next kernel needs to poll the output rows in place and to re-arm them behind itself. By
/// value.
struct OutConsumer;

struct WorldOptions {
  Engine engine = Engine::automatic;
  int threads = 0;  ///< CPU engine: threads that compute, over all ranks; 0: one a core
  /// A wait longer than this is a fault; 0 means none. The first call of a box has `first_deadline`.
  std::chrono::milliseconds deadline{10'000};
  std::chrono::milliseconds first_deadline{60'000};
  std::string policy_file;               ///< empty: the built-in table of the engine
  std::shared_ptr<const Policy> policy;  ///< in place of a file; null: none
  /// Where the ranks of this process record what they pass: on the CPU engine sites, on the CUDA engine the phases of each warp of a tail, of
  /// the latest 128 calls of a box before World::synchronize hands them over. Null: nowhere, which costs nothing.
  std::shared_ptr<Trace> trace;
  /// CUDA engine: the caller's own cudaStream_t, of the first device, as the main stream of the ranks of this process; it must outlive the
  /// world. Not the legacy default stream. Null: a stream of the world's own.
  void* cuda_stream = nullptr;
  /// World::replay: whose cost is measured; automatic is multicast. Elsewhere the transport decides, and anything else is refused.
  Put put = Put::automatic;
};

/// A rank's fault in words people can act on.
struct FaultReport {
  protocol::FaultRecord record;
  std::string text() const;
};

/// What a rank sends in a call, in host memory: for World::replay.
struct SentRows {
  std::span<const Bf16> partial;  ///< [B, L]: its finalized partial
  std::span<const Bf16> shared;   ///< [B, H]
};

/// The meeting place of ranks that are processes of one machine: a segment of shared memory, made by whoever starts them.
/// docs/processes.md.
class ProcessSession {
 public:
  /// For `ranks` ranks. Throws Code::invalid_argument, or Code::resource where there is no shared memory. Also removes what processes of
  /// this user left in shared memory when they were killed during set-up.
  static ProcessSession create(int ranks);

  /// What each rank's ProcessGroup takes. Whoever knows it and runs as the same user can join, so hand it over in private (a pipe, an
  /// environment variable), not on a command line. The object must live until every rank's World::processes has returned.
  const std::string& token() const;
  /// Ends the ranks' waits for each other in set-up and recovery with Code::fault and `reason`: for a launcher that sees a rank die.
  void cancel(const std::string& reason) const;

  struct Impl;

 private:
  explicit ProcessSession(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

/// This process's place in a group.
struct ProcessGroup {
  int rank = 0;
  int ranks = 1;
  std::string token;  ///< ProcessSession::token
  /// The longest that a rank waits for the others in World::processes, make_boxes and recover, for each step; 1 ms at least.
  std::chrono::milliseconds setup_deadline{60'000};
};

struct RankCall {
  PreparedTail* tail = nullptr;
  Call call;
};

/// Memory that the launches of a rank can address: ordinary memory on the CPU engine, device memory on the CUDA engine, which takes no
/// other in any call. 256-byte aligned, not initialized. Copies share it; it is freed with the last one.
class RankBuffer {
 public:
  void* data() const { return memory_.get(); }
  std::size_t bytes() const { return bytes_; }

 private:
  friend class World;
  RankBuffer(std::shared_ptr<void> memory, std::size_t bytes) : memory_(std::move(memory)), bytes_(bytes) {}
  std::shared_ptr<void> memory_;
  std::size_t bytes_;
};

/// The ranks of one tensor-parallel group, and whose memory is where.
class World {
 public:
  /// Why an engine cannot run on this machine, in words; nothing where it can. Cheap, and makes no world.
  static std::optional<std::string> obstacle(Engine engine);

  /// `ranks` ranks in this process: threads over ordinary memory on the CPU engine; on the CUDA engine all on one GPU, whose tails run
  /// together in one cooperative launch. Engine::automatic is the CPU engine: buffers of the other lie elsewhere.
  static World virtual_ranks(int ranks, const WorldOptions& options = {});
  /// One rank, alone.
  static World single(const WorldOptions& options = {});

  /// One rank, in this process, of a group whose others are processes of this user on this machine; CPU engine only. Collective, as are
  /// make_boxes and recover: each is a vote, so that what fails on one rank is every rank's error, which names it, and a rank that has
  /// died, left or not come is named too (Code::fault). After that fault the session is over: survivors meet in a new one.
  /// `options.threads` counts those of all ranks. Throws Code::invalid_argument where ranks disagree (library, arithmetic, policy), and
  /// Code::unsupported for the CUDA engine.
  static World processes(const ProcessGroup& group, const WorldOptions& options = {});

  /// Rank `rank` of a group of `ranks`, alone on a GPU, to measure it: its peers' part of its mailboxes is filled once by
  /// TailBox::fill_peers and stays; what it sends to them goes to scratch memory at full cost, and what every rank gets whole is one
  /// store, as multicast on the wire, or a store a rank (`options.put`). CUDA engine only, whatever `options.engine` says.
  static World replay(int rank, int ranks, const WorldOptions& options = {});

  int ranks() const;
  int local_ranks() const;  ///< how many of them live in this process: make_boxes returns one box for each
  int first_rank() const;   ///< the first of those
  Engine engine() const;
  Stream main_stream(int rank) const;
  Stream side_stream(int rank) const;

  /// One box a local rank, armed. Collective: all ranks pass the same shape.
  std::vector<TailBox> make_boxes(const Shape& shape) const;

  /// Memory for a rank's inputs and outputs. Throws Code::resource.
  RankBuffer make_buffer(int rank, std::size_t bytes) const;

  /// One call of every local rank, at most one a rank, all of the same batch; the way to run a world whose
  /// ranks live in one process.
  std::vector<OutView> run(std::span<const RankCall> calls) const;

  /// Waits for all streams of all local ranks. Throws Code::fault with the first fault of any box of this
  /// world.
  void synchronize() const;

  /// After a fault, or at any time between calls: waits until the streams are idle, re-arms the boxes of all
  /// ranks together and forgets their faults. `boxes` must be all the boxes that one make_boxes returned.
  void recover(std::span<TailBox> boxes) const;

  struct Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  explicit World(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

/// A rank's mailboxes: one set for all layers of a model.
class TailBox {
 public:
  int rank() const;
  const Shape& shape() const;
  std::size_t bytes() const;  ///< of the mailboxes

  /// Copies the rows of `view` to `destination` ([B, H] bf16) and re-arms them. `view` must be the latest
  /// call's, untaken. On a faulted box the destination is filled with NaN.
  void take(const OutView& view, std::span<Bf16> destination, const Stream& stream = {}) const;

  /// Declares that the user's own kernel, next on this stream, consumes all rows of `view` in place: with
  /// consume_row, or on a GPU with moetail/device/consume.cuh.
  OutConsumer consumer(const OutView& view, const Stream& stream = {}) const;

  /// Replay only, between calls: what all ranks send in calls of this batch and mode, rank by rank. Every call that follows must be of
  /// them; after another fill or World::recover others may come. Only this rank's columns of an output row are then computed, the
  /// others are 0.
  void fill_peers(int batch, Mode mode, std::span<const SentRows> ranks) const;

  /// Compiles, checks and loads every kernel that calls of this batch, mode, form and weight type need, so that the first of them takes
  /// no longer than the others, and is allowed under graph capture. Returns how many there are; 0 on the CPU engine, which has none to
  /// compile. Errors are those of the call.
  int warm_up(int batch, Mode mode = Mode::automatic, Form form = Form::expanded,
              WeightType weights = WeightType::bf16, bool residual = false, bool early = false) const;

  /// The fault this rank has seen, if any. Callable at any time, from any thread.
  std::optional<FaultReport> status() const;

  /// Ends the waits of a running call of this rank; the box is poisoned, as after any fault. From any thread.
  void abort() const;

  struct Impl;
  explicit TailBox(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

/// One layer's weights for one rank. Views: the memory stays the caller's and must outlive the object.
class TailWeights {
 public:
  /// `up_proj`: the full weight [H, L] (rank's rows are taken from it). `norm`: gamma [L].
  static TailWeights from_full(const Shape& shape, int rank, std::span<const Bf16> up_proj,
                               std::span<const Bf16> norm);
  /// `shard`: rows [rank*H/T, (rank+1)*H/T) of it, [H/T, L].
  static TailWeights from_shard(const Shape& shape, int rank, std::span<const Bf16> shard,
                                std::span<const Bf16> norm);

  const Bf16* shard() const { return shard_; }
  const Bf16* norm() const { return norm_; }
  const Shape& shape() const { return shape_; }
  int rank() const { return rank_; }

 private:
  TailWeights(const Shape& shape, int rank, const Bf16* shard, const Bf16* norm)
      : shape_(shape), rank_(rank), shard_(shard), norm_(norm) {}
  Shape shape_;
  int rank_;
  const Bf16* shard_;
  const Bf16* norm_;
};

/// A layer's tail on one rank. The mode of a call is fixed by the first of push, publish, poll_slots and run.
class PreparedTail {
 public:
  /// `layer` labels faults and is compared between ranks in every call; 0 is not compared.
  PreparedTail(const TailBox& box, const TailWeights& weights, int layer = 0);

  /// Sends the shared experts' partial [B, H] to the ranks that own its columns. May be called at every
  /// batch; in the front modes it only remembers the buffer for `run`. Publish mode needs it, and so does twoshot
  /// where the user publishes; a twoshot `run` that is given rows does it itself where nobody has, in one launch on a
  /// GPU. `stream`: empty for the main stream, or the rank's side stream, which is forked from the main stream here and
  /// joined to it by `run`.
  void push(std::span<const Bf16> shared, int batch, Mode mode = Mode::automatic,
            const Stream& stream = {}) const;

  /// The tail itself, in a world that has one rank in this process; others use World::run.
  OutView run(const Call& call) const;

  /// Destinations for a user's own publishing kernel of this call (publish, twoshot): moetail/device/publish.cuh.
  PublishTargets publish(int batch, Mode mode = Mode::automatic) const;

  /// Slots for a user's own polled producers of this call (moetail/device/fill.cuh); nullopt says that the call is a front call (B >
  /// PC, or by policy).
  std::optional<PollSlots> poll_slots(int batch, Mode mode = Mode::automatic) const;

  struct Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

/// A header as an include line names it ("moetail/device/publish.cuh"), and its text.
struct DeviceHeader {
  const char* name;
  const char* text;
};

/// The headers that a user's own kernels include, for a compiler that is given them in memory (nvrtcCreateProgram): those of
/// moetail/device and what they include. Files of the same names are installed for nvcc.
std::vector<DeviceHeader> device_headers();

}  // namespace moetail

#include "moetail/producer.hpp"
