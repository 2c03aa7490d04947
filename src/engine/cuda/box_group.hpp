// SPDX-License-Identifier: Apache-2.0
// The CUDA engine as the runtime sees it: all ranks of a world on one device, or one of them ("replay"). With one rank its tails are dependent launches; with
// several ("loopback") the tails of all ranks are one cooperative launch, and everything else is a launch a rank.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/trace.hpp"
#include "engine/cuda/box_kernels.hpp"
#include "engine/cuda/box_memory.hpp"
#include "engine/cuda/kernel_store.hpp"
#include "engine/cuda/kernel_trace.hpp"
#include "engine/cuda/stream.hpp"
#include "engine/group.hpp"

namespace moetail::cuda {

struct GroupOptions {
  int ranks = 1;  ///< of the world
  int replay_rank =
      -1;  ///< the one rank that is here, its peers played by filled mailboxes; -1: all are here
  bool replays_unicast = false;  ///< replay: what every rank gets whole is a store a rank, not one for all
  std::chrono::nanoseconds deadline{0};        ///< of a wait; 0: none
  std::chrono::nanoseconds first_deadline{0};  ///< in the first call of a box
  ContextRef context;                          ///< null: the first device of the machine
  abi::Stream main_stream = nullptr;           ///< the caller's; null: one of the group's own
  std::shared_ptr<Trace> trace;                ///< null: none
  std::shared_ptr<KernelCache> cache;  ///< null: one over the machine's NVRTC and kernel_cache_directory
};

class Group;

/// One rank's box. The group outlives it.
class Box final : public engine::Box {
 public:
  Box(Group& group, int rank, std::shared_ptr<BoxKernels> kernels);

  const protocol::BoxView& view() const override { return view_; }
  protocol::LaunchLink link() const override;
  void arm() override;
  std::optional<protocol::FaultRecord> fault() const override { return memory_.fault(); }
  void abort() override { memory_.stop(); }
  void check_address(const char* name, const void* address) const override;
  int warm_up(const engine::TailCall& call) override;
  void fill_peers(int batch, Mode mode, std::span<const engine::SentRows> ranks) override;
  void prepare_push(const engine::Stream& main, const engine::TailCall& call) override;
  void push(engine::Stream& stream, const engine::TailCall& call) override;
  void publish(engine::Stream& stream, const engine::TailCall& call) override;
  void publish_rows(engine::Stream& stream, const PublishTargets& targets, const engine::u16* rows) override;
  void fill(engine::Stream& stream, const engine::TailCall& call) override;
  void take(engine::Stream& stream, int batch, engine::u16* destination) override;

  /// This rank's part of a launch's arguments.
  kernels::RankArgs args(const engine::TailCall& call) const;
  BoxKernels& kernels() const { return *kernels_; }
  /// Once all boxes of the family are made. In replay peers are the scratch box instead, and get what goes to them at full cost.
  void set_peers(std::span<const BoxMemory* const> boxes) { view_ = BoxMemory::view(boxes, rank_); }
  const BoxMemory& memory() const { return memory_; }
  void set_layer(int layer) { layer_ = layer; }

 private:
  /// A launch of this rank alone.
  void launch(kernels::Kind kind, engine::Stream& stream, const engine::TailCall& call,
              engine::u16* destination = nullptr);

  Group& group_;
  const int rank_;
  std::shared_ptr<BoxKernels> kernels_;
  BoxMemory memory_;
  DeviceMemory scratch_;  // replay only: the peers' boxes
  protocol::BoxView view_;
  std::shared_ptr<TraceSlots> trace_slots_;  // null without a trace
  int layer_ = 0;  ///< label of the latest tail, for the fault of whoever takes its output
};

class Group final : public engine::Group {
 public:
  /// Throws Code::unsupported with cuda_support's reason.
  explicit Group(const GroupOptions& options);

  engine::Kind kind() const override { return engine::Kind::cuda; }
  std::unique_ptr<engine::Stream> make_stream(int rank, engine::StreamRole role) override;
  std::vector<std::unique_ptr<engine::Box>> make_boxes(const protocol::Shape& shape) override;
  void prepare(std::span<const engine::RankTail> tails) override;
  void tail(std::span<const engine::RankTail> tails) override;
  bool has_one_launch() const override { return true; }
  std::shared_ptr<void> allocate(int rank, std::size_t bytes) override;
  void collect_trace() override;

  /// Slots for the tails of a rank's box, collected as long as the box lives; null without a trace.
  std::shared_ptr<TraceSlots> make_trace_slots(int rank);

  const GroupOptions& options() const { return options_; }
  const ContextRef& context() const { return context_; }
  const Stream& main() const { return *main_; }
  const Stream& side() const { return *side_; }
  bool is_replay() const { return options_.replay_rank >= 0; }
  kernels::PutBy put() const {
    return is_replay() && !options_.replays_unicast ? kernels::PutBy::own : kernels::PutBy::peers;
  }

 private:
  std::shared_ptr<BoxKernels> make_kernels(const protocol::Shape& shape, int ranks) const;

  GroupOptions options_;
  ContextRef context_;
  std::shared_ptr<KernelStore> store_;
  kernels::DeviceShape device_;
  std::shared_ptr<Stream> main_;  // one for all ranks: in loopback their work is one launch's
  std::shared_ptr<Stream> side_;
  std::mutex traced_mutex_;
  std::vector<std::weak_ptr<TraceSlots>> traced_;
};

}  // namespace moetail::cuda
