// SPDX-License-Identifier: Apache-2.0
#include "verify/explore/model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "protocol/order.hpp"
#include "verify/explore/kernels.hpp"

#if !defined(MOETAIL_EXPLORE_WITHOUT)
#define MOETAIL_EXPLORE_WITHOUT ""
#endif

namespace moetail::explore {
namespace {

using protocol::Control;
using protocol::kLaunchOrder;
using protocol::kRegions;
using protocol::RegionSpec;

struct BoundProgram : Program {
  Config config;
  std::vector<BoxView> views;
};

/// The streams of one rank, to which launches are appended.
class RankSchedule {
 public:
  RankSchedule(std::vector<Launch>& launches, int rank, int blocks)
      : launches_(launches), rank_(rank), blocks_(blocks) {}

  /// On the main stream, after what is there. `early`: when that has only begun; what comes next then waits for both.
  void on_main(const char* kernel, int call, int parts, bool early = false) {
    Launch launch{rank_, call, kernel, parts, {}, {}};
    if (early)
      launch.beside.push_back(main_);
    else
      follow(launch, main_);
    for (int joined : joined_) launch.after.push_back(joined);
    joined_.clear();
    if (early) joined_.push_back(main_);
    main_ = append(std::move(launch));
  }
  /// On the side stream: after what is there, and after the consumer of the call before, where the order says so.
  void on_side(const char* kernel, int call, int parts, bool after_main) {
    Launch launch{rank_, call, kernel, parts, {}, {}};
    follow(launch, side_);
    if (after_main) follow(launch, main_);
    side_ = append(std::move(launch));
  }
  /// What comes next on the main stream waits for the side stream too.
  void join() { joined_.push_back(side_); }
  int blocks() const { return blocks_; }

 private:
  void follow(Launch& launch, int predecessor) const {
    if (predecessor < 0) return;
    (kLaunchOrder.launch_after_predecessor ? launch.after : launch.beside).push_back(predecessor);
  }
  int append(Launch launch) {
    launches_.push_back(std::move(launch));
    return static_cast<int>(launches_.size()) - 1;
  }

  std::vector<Launch>& launches_;
  const int rank_;
  const int blocks_;
  int main_ = -1;
  int side_ = -1;
  std::vector<int> joined_;
};

/// Everything of one call up to its tail (src/runtime/prepared_tail.cpp).
void add_tail(RankSchedule& rank, const CallPlan& plan, int call, bool waves_early, int push_blocks) {
  const bool pushes = plan.mode == Mode::publish || plan.mode == Mode::twoshot;
  if (pushes && plan.side_push)
    rank.on_side("push", call, push_blocks, kLaunchOrder.push_after_consumer);
  else if (pushes)
    rank.on_main("push", call, rank.blocks());
  if (pushes) rank.on_main("publish", call, rank.blocks());
  // The producers of front_poll run beside the tail, forked as a push is.
  if (plan.mode == Mode::front_poll) rank.on_side("fill", call, 1, true);
  rank.on_main("tail", call, rank.blocks(), pushes && waves_early);
  if (pushes && plan.side_push) rank.join();
}

std::vector<Launch> make_launches(const Config& config) {
  std::vector<Launch> launches;
  for (int r = 0; r < config.ranks; ++r) {
    RankSchedule rank(launches, r, config.blocks);
    int taken = 0;
    for (int call = 0; call < static_cast<int>(config.calls.size()); ++call) {
      add_tail(rank, config.calls[static_cast<std::size_t>(call)], call, config.waves_early,
               config.push_blocks);
      // Without the order a tail is a call ahead of the consumers.
      const int upto = kLaunchOrder.tail_after_consumer ? call : call - 1;
      for (; taken <= upto; ++taken) rank.on_main("take", taken, 1);
    }
    for (; taken < static_cast<int>(config.calls.size()); ++taken) rank.on_main("take", taken, 1);
  }
  return launches;
}

void run_part(const BoundProgram& program, Machine& machine, Part& part) {
  const BoxView& view = program.views[static_cast<std::size_t>(part.launch->rank)];
  Kernel kernel(program.config, view, ModelMemory(machine, part));
  const std::string_view name = part.launch->kernel;
  if (name == "push") kernel.push();
  if (name == "publish") kernel.publish();
  if (name == "fill") kernel.fill();
  if (name == "tail") kernel.tail();
  if (name == "take") kernel.take();
}

std::string control_name(u64 offset, const protocol::Layout& layout) {
  constexpr const char* kNames[] = {"epoch", "poison", "record_even", "record_odd", "arrivals"};
  constexpr Control kWords[] = {Control::epoch, Control::poison, Control::record_even, Control::record_odd,
                                Control::arrivals};
  for (std::size_t i = 0; i < std::size(kWords); ++i)
    if (layout.control_at(kWords[i]) == offset) return kNames[i];
  return "control";
}

std::string name_of(const protocol::Layout& layout, u64 address) {
  const u64 box = address / kBoxStride * kBoxStride, offset = address - box;
  const std::string owner = box == kCommonBox ? "common" : fmt::format("r{}", address / kBoxStride - 1);
  if (offset >= layout.offset[static_cast<int>(Region::control)])
    return fmt::format("{} {}", owner, control_name(offset, layout));
  int i = 0;
  while (i + 1 < kRegions && layout.offset[i + 1] <= offset) ++i;
  const RegionSpec spec = protocol::spec_of(static_cast<Region>(i));
  u64 rest = offset - layout.offset[i];
  std::string name = fmt::format("{} {}", owner, spec.name);
  if (spec.per_slot) name += fmt::format("[slot {}]", rest / layout.slot_bytes[i]);
  rest %= layout.slot_bytes[i];
  if (spec.per_source) name += fmt::format("[from r{}]", rest / layout.source_bytes[i]);
  rest %= layout.source_bytes[i];
  name += fmt::format("[row {}]", rest / layout.row_bytes[i]);
  return name + fmt::format(", word {}", rest % layout.row_bytes[i] / 4);
}

}  // namespace

std::unique_ptr<Program> make_program(const Config& config) {
  auto program = std::make_unique<BoundProgram>();
  program->config = config;
  const protocol::Layout layout = protocol::make_layout(config.shape());
  for (int rank = 0; rank < config.ranks; ++rank) {
    BoxView view;
    view.layout = layout;
    view.rank = rank;
    for (int peer = 0; peer < config.ranks; ++peer) view.peer[peer] = box_address(peer);
    if (config.common) view.common = std::bit_cast<protocol::u8*>(kCommonBox);
    program->views.push_back(view);
  }
  program->launches = make_launches(config);
  program->fault = config.fault;
  const BoundProgram* const bound = program.get();
  program->run = [bound](Machine& machine, Part& part) { run_part(*bound, machine, part); };
  program->name_of = [layout](u64 address) { return name_of(layout, address); };
  const u64 control = layout.offset[static_cast<int>(Region::control)];
  program->initial = [control](u64 address) {
    return address % kBoxStride >= control ? u64{0} : u64{protocol::kEmptyWord};
  };
  return program;
}

const char* missing_safeguard() {
  return MOETAIL_EXPLORE_WITHOUT;
}

}  // namespace moetail::explore
