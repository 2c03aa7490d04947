// SPDX-License-Identifier: Apache-2.0
// What the door's handles hold. Tests reach the engine's state of a rank through TailBox::impl().
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "engine/group.hpp"
#include "moetail/moetail.hpp"
#include "moetail/policy.hpp"
#include "runtime/call_tracker.hpp"
#include "runtime/process_ranks.hpp"
#include "transport/host.hpp"

namespace moetail {

struct Stream::Impl {
  Impl(int rank_in, std::unique_ptr<engine::Stream> stream_in)
      : rank(rank_in), stream(std::move(stream_in)) {}
  const int rank;
  const std::unique_ptr<engine::Stream> stream;
};

struct World::Impl {
  struct Rank {
    std::shared_ptr<Stream::Impl> main;
    std::shared_ptr<Stream::Impl> side;
  };

  WorldOptions options;
  Policy policy;
  std::unique_ptr<engine::Group> group;
  int num_ranks = 1;                                 ///< of the group
  int first_rank = 0;                                ///< of those in this process
  std::vector<Rank> ranks;                           ///< of this process
  std::unique_ptr<runtime::ProcessRanks> processes;  ///< where the others are processes, else null
  std::atomic<int> families = 0;                     ///< how often boxes were made
  std::mutex mutex;                                  ///< guards `boxes`
  std::vector<std::weak_ptr<TailBox::Impl>> boxes;
};

struct TailBox::Impl {
  std::shared_ptr<World::Impl> world;
  std::shared_ptr<const int>
      family;  ///< the same of all boxes that one make_boxes returned, which counts from 1 on
  Shape shape;
  int rank = 0;
  std::unique_ptr<engine::Box> box;
  runtime::CallTracker tracker;

  /// Launches refer to the box by plain pointer, so that none of them can be its last owner: it outlives what is enqueued.
  ~Impl();

  World::Impl::Rank& rank_resources() const {
    return world->ranks[static_cast<std::size_t>(rank - world->first_rank)];
  }
};

struct PreparedTail::Impl {
  TailBox box;
  TailWeights weights;
  int layer;
};

namespace runtime {

/// The ranks of a world that this process has: all of them, or `lone_rank`.
struct RanksHere {
  static constexpr int kAll = -1;

  int ranks = 1;
  int lone_rank = kAll;  ///< replayed on the CUDA engine, a process of a group on the CPU engine
};
/// Checked: a number of ranks that is supported, and every option.
std::shared_ptr<World::Impl> make_world(const RanksHere& here, const WorldOptions& options);
/// MOETAIL_MULTICAST. Throws Code::invalid_argument.
transport::Copies copies_wanted();

/// Waits for one stream. What a launch threw comes back as an Error.
void wait_for_stream(Stream::Impl& stream);

/// The box's main stream, which a call may name as `requested` or leave empty. Throws Code::busy for any other stream.
std::shared_ptr<Stream::Impl> check_main_stream(const TailBox::Impl& box, const Stream& requested,
                                                const char* what);

/// Throws Code::call_order while the stream is capturing: what waits, or allocates, would end the capture.
void check_not_capturing(const engine::Stream& stream, const char* what);

/// Throws Code::fault when the box has faulted.
void check_no_fault(const TailBox::Impl& box);

/// Throws Code::unsupported, with the reason, unless an engine of this kind runs on this machine.
void check_engine(Engine engine);

/// One rank's part of World::run, in two steps, so that no rank enqueues anything when another rank's call is wrong.
struct RankRun {
  const char* what;
  std::shared_ptr<PreparedTail::Impl> tail;
  Call call;
  Mode mode = Mode::front;
};
void check_run(RankRun& run);
/// All local ranks of one world, checked.
std::vector<OutView> enqueue_runs(std::span<const RankRun> runs);

/// Alignment, sizes and pointers of a call's buffers against shape, batch and form. Each violation is an
/// Error(Code::invalid_argument) that names the buffer, its value and what is accepted.
void check_shape(const Shape& shape);
void check_batch(const Shape& shape, int batch);
void check_buffer(const char* name, const void* data, std::size_t count, std::size_t needed,
                  std::size_t alignment);
void check_routed(const Routed& routed, const Shape& shape, int batch);
void check_addresses(const engine::Box& box, const Routed& routed);

/// The engine's view of a routed input that was checked.
engine::RoutedInput routed_input(const Routed& routed, const Shape& shape);

/// The mode that serves a batch: `requested`, or the policy's. Throws when a forced mode cannot serve it.
Mode resolve_mode(Mode requested, const Shape& shape, int batch, const Policy& policy);
/// What the policy says of a call whose mode and batch are set: whether it shares sums, and what is asked of its kernel.
void apply_policy(engine::TailCall& call, const Policy& policy, int ranks);

}  // namespace runtime
}  // namespace moetail
