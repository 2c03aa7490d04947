// SPDX-License-Identifier: Apache-2.0
// Worlds whose ranks are processes.
#include "runtime/process_ranks.hpp"

#include <sstream>

#include "base/error.hpp"
#include "engine/cpu/arith.hpp"
#include "runtime/impl.hpp"
#include "transport/shared_heap.hpp"

namespace moetail {
namespace runtime {
namespace {

std::string text_of(const Fingerprint& fields) {
  std::string text;
  for (const auto& [name, value] : fields) text += fmt::format("{}\t{}\n", name, value);
  return text;
}

/// Throws where two ranks' texts differ, in the first field that does.
void compare_fingerprints(const std::vector<std::string>& texts) {
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    std::istringstream first(texts[0]), other(texts[rank]);
    std::string ours, theirs;
    while (std::getline(first, ours) && std::getline(other, theirs)) {
      if (ours == theirs) continue;
      const auto value = [](const std::string& line) { return line.substr(line.find('\t') + 1); };
      base::fail(Code::invalid_argument,
                 "ranks 0 and {} disagree: {} = {} on rank 0 and {} on rank {}: accepted is one", rank,
                 ours.substr(0, ours.find('\t')), value(ours), value(theirs), rank);
    }
  }
}

// Ranks of one layout put every word at the same place.
std::string hash_of(const protocol::Layout& layout) {
  std::uint64_t hash = 14695981039346656037u;
  const auto add = [&](std::uint64_t value) { hash = (hash ^ value) * 1099511628211u; };
  for (int i = 0; i < protocol::kRegions; ++i) {
    for (const auto* of :
         {layout.offset, layout.row_bytes, layout.source_bytes, layout.slot_bytes, layout.region_bytes})
      add(of[i]);
  }
  for (int i = 0; i < protocol::kControlWords; ++i) add(layout.control_at(static_cast<protocol::Control>(i)));
  return fmt::format("{:016x}", hash);
}

Fingerprint fingerprint_of(const Shape& shape, transport::Copies copies) {
  const auto text = [](auto value) { return fmt::format("{}", value); };
  return {{"hidden", text(shape.hidden)},
          {"latent", text(shape.latent)},
          {"ranks", text(shape.ranks)},
          {"top_k", text(shape.top_k)},
          {"capacity", text(shape.capacity)},
          {"poll_capacity", text(shape.poll_capacity)},
          {"eps", text(shape.eps)},
          {"MOETAIL_MULTICAST", copies == transport::Copies::one_for_all ? "1" : "0"},
          {"layout of the mailboxes", hash_of(protocol::make_layout(shape))}};
}

Fingerprint fingerprint_of(const World::Impl& world) {
  std::string table;
  for (const int limit : world.policy.front_up_to) table += fmt::format("{},", limit);
  return {{"version of moetail", MOETAIL_VERSION},
          {"MOETAIL_CPU_TARGET", cpu::arith().name},
          {"policy (front_up_to, share_from)", fmt::format("{} {}", table, world.policy.share_from)}};
}

}  // namespace

ProcessRanks::ProcessRanks(const std::string& token, int rank, int ranks, std::chrono::milliseconds deadline)
    : meeting_(token, rank, ranks, deadline) {}

void ProcessRanks::agree(const std::string& step, const std::function<Fingerprint()>& make) {
  transport::Outcome outcome;
  std::string text;
  try {
    text = text_of(make());
  } catch (...) {
    outcome = transport::current_failure();
  }
  compare_fingerprints(meeting_.gather(step, text, outcome));
}

std::unique_lock<std::mutex> ProcessRanks::begin(const char* what) {
  std::unique_lock lock(in_use_, std::try_to_lock);
  if (!lock)
    base::fail(Code::busy,
               "{}: another thread is at a collective step of this world: accepted is one at a time", what);
  return lock;
}

void ProcessRanks::join(const std::function<Fingerprint()>& make) {
  agree("World::processes", make);
  meeting_.remove_name();
}

std::vector<std::unique_ptr<engine::Box>> ProcessRanks::make_boxes(cpu::Group& group, int family,
                                                                   const protocol::Shape& shape,
                                                                   const std::function<void()>& check) {
  const auto lock = begin("make_boxes");
  const std::string step = fmt::format("make_boxes {}", family);
  auto copies = transport::Copies::one_for_all;
  agree(step, [&] {
    check();
    copies = copies_wanted();
    return fingerprint_of(shape, copies);
  });
  const auto heap =
      std::make_shared<transport::SharedHeap>(meeting_, step, protocol::make_layout(shape), copies);
  std::vector<std::unique_ptr<engine::Box>> boxes;
  meeting_.vote_on(step + ", arming", [&] { boxes = group.make_boxes_in({{heap->view()}, heap}); });
  return boxes;
}

void ProcessRanks::recover(int family, const std::function<void()>& come_to_rest,
                           const std::function<void()>& arm) {
  const auto lock = begin("recover");
  const std::string step = fmt::format("recover of boxes {}", family);
  // Once all have come to rest no store of theirs is under way to a box that is being armed.
  meeting_.vote_on(step, come_to_rest);
  meeting_.vote_on(step + ", arming", arm);
}

}  // namespace runtime

struct ProcessSession::Impl {
  explicit Impl(int ranks) : session(ranks) {}
  transport::Session session;
};

ProcessSession ProcessSession::create(int ranks) {
  if (!protocol::is_supported_rank_count(ranks))
    base::bad_argument("ranks", ranks, protocol::rule_text(protocol::ShapeRule::ranks).accepted);
  transport::sweep_segments();
  return ProcessSession(std::make_shared<Impl>(ranks));
}

const std::string& ProcessSession::token() const {
  return impl_->session.token();
}

void ProcessSession::cancel(const std::string& reason) const {
  impl_->session.cancel(reason);
}

World World::processes(const ProcessGroup& group, const WorldOptions& options) {
  if (!protocol::is_supported_rank_count(group.ranks))
    base::bad_argument("ranks", group.ranks, protocol::rule_text(protocol::ShapeRule::ranks).accepted);
  if (group.rank < 0 || group.rank >= group.ranks)
    base::bad_argument("rank", group.rank, fmt::format("0 to {}", group.ranks - 1));
  constexpr std::int64_t kLongestSetupMs = 1'000'000'000;
  if (group.setup_deadline.count() < 1 || group.setup_deadline.count() > kLongestSetupMs)
    base::bad_argument("setup_deadline (ms)", group.setup_deadline.count(),
                       fmt::format("1 to {}", kLongestSetupMs));
  auto seat =
      std::make_unique<runtime::ProcessRanks>(group.token, group.rank, group.ranks, group.setup_deadline);
  std::shared_ptr<Impl> impl;
  seat->join([&] {
    if (options.engine == Engine::cuda)
      base::fail(Code::unsupported, "World::processes: engine = cuda: accepted is cpu or auto");
    impl = runtime::make_world({group.ranks, group.rank}, options);
    return runtime::fingerprint_of(*impl);
  });
  impl->processes = std::move(seat);
  return World(impl);
}

}  // namespace moetail
