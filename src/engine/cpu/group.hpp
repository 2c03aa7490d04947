// SPDX-License-Identifier: Apache-2.0
// The CPU engine as the runtime sees it: streams that are threads, boxes in ordinary memory, a team of threads a rank.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/cpu/box_state.hpp"
#include "engine/cpu/launch.hpp"
#include "engine/cpu/stream.hpp"
#include "engine/group.hpp"

namespace moetail::cpu {

/// The boxes' memory as a transport made it: what each rank sees of it, and who keeps it.
struct Mailboxes {
  std::vector<protocol::BoxView> views;
  std::shared_ptr<const void> owner;
};
using MakeMailboxes = std::function<Mailboxes(const protocol::Layout&)>;

struct GroupOptions {
  int ranks = 1;                               ///< of the world
  int local_ranks = 1;                         ///< those of this process
  int threads = 0;                             ///< that compute, over all ranks; 0: one a core
  std::chrono::nanoseconds deadline{0};        ///< of a wait; 0: none
  std::chrono::nanoseconds first_deadline{0};  ///< in the first call of a box
  MakeMailboxes make_mailboxes;                ///< may be empty where make_boxes_in alone is used
  std::shared_ptr<Trace> trace;                ///< null: none
};

class Box final : public engine::Box {
 public:
  Box(std::shared_ptr<const void> memory, Team& team)
      : engine::Box(engine::Kind::cpu), memory_(std::move(memory)), team_(team) {}

  const protocol::BoxView& view() const override { return state_.view; }
  void arm() override;
  std::optional<protocol::FaultRecord> fault() const override { return state_.fault.get(); }
  void abort() override;
  void check_address(const char*, const void*) const override {}
  int warm_up(const TailCall&) override { return 0; }
  void fill_peers(int batch, Mode mode, std::span<const engine::SentRows> ranks) override;
  void push(engine::Stream& stream, const TailCall& call) override;
  void publish(engine::Stream& stream, const TailCall& call) override;
  void publish_rows(engine::Stream& stream, const PublishTargets& targets, const u16* rows) override;
  void fill(engine::Stream& stream, const TailCall& call) override;
  void take(engine::Stream& stream, int batch, u16* destination) override;
  void tail(engine::Stream& stream, const TailCall& call);

  BoxState& state() { return state_; }

 private:
  using Kernel = bool (*)(Cluster&, const TailCall&);
  /// All clusters of the rank together on the main stream; one, on the stream's own thread, on a side stream.
  void launch(engine::Stream& stream, Kernel kernel, const TailCall& call);

  BoxState state_;
  std::shared_ptr<const void> memory_;
  Team& team_;  // the group's, which the box's world keeps
};

/// The box of a handle that a struct of producer.hpp carries.
BoxState& state_of(engine::Box& box);

class Group final : public engine::Group {
 public:
  explicit Group(const GroupOptions& options);

  engine::Kind kind() const override { return engine::Kind::cpu; }
  std::unique_ptr<engine::Stream> make_stream(int rank, engine::StreamRole role) override;
  std::vector<std::unique_ptr<engine::Box>> make_boxes(const protocol::Shape& shape) override;
  /// The same in memory that is there already: a view for each rank of this process.
  std::vector<std::unique_ptr<engine::Box>> make_boxes_in(const Mailboxes& mailboxes);
  void prepare(std::span<const engine::RankTail>) override {}
  void tail(std::span<const engine::RankTail> tails) override;
  std::shared_ptr<void> allocate(int rank, std::size_t bytes) override;

 private:
  GroupOptions options_;
  std::vector<std::unique_ptr<Team>> teams_;  // one a rank of this process
};

}  // namespace moetail::cpu
