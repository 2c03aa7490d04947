// SPDX-License-Identifier: Apache-2.0
#include "verify/explore/machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace moetail::explore {
namespace {

/// Stacks are kept between executions: there are thousands of those.
Fiber& fiber_of(std::size_t index) {
  static std::vector<std::unique_ptr<Fiber>> fibers;
  while (fibers.size() <= index) fibers.push_back(std::make_unique<Fiber>());
  return *fibers[index];
}

}  // namespace

const char* property_text(Property property) {
  switch (property) {
    case Property::none: return "holds";
    case Property::stale: return "a stale word is taken for new";
    case Property::erased: return "a fresh word is erased";
    case Property::unending: return "a call does not end";
    case Property::output: return "an output row is wrong";
    case Property::order: return "a control word has two writers at once";
  }
  return "?";
}

Machine::Machine(const Program& program) : program_(program) {
  for (std::size_t launch = 0; launch < program.launches.size(); ++launch) {
    for (int index = 0; index < program.launches[launch].parts; ++index) {
      Part part;
      part.id = static_cast<int>(parts_.size());
      part.launch_id = static_cast<int>(launch);
      part.launch = &program.launches[launch];
      part.index = index;
      part.fiber = &fiber_of(parts_.size());
      parts_.push_back(part);
    }
    parts_left_.push_back(program.launches[launch].parts);
    parts_begun_.push_back(0);
  }
}

std::string Machine::name_of(const Part& part) const {
  return fmt::format("r{} call {} {}.{}", part.launch->rank, part.launch->call, part.launch->kernel,
                     part.index);
}

bool Machine::may_begin(const Launch& launch) const {
  const auto is_complete = [&](int other) { return parts_left_[static_cast<std::size_t>(other)] == 0; };
  const auto has_begun = [&](int other) {
    return parts_begun_[static_cast<std::size_t>(other)] ==
           program_.launches[static_cast<std::size_t>(other)].parts;
  };
  return std::all_of(launch.after.begin(), launch.after.end(), is_complete) &&
         std::all_of(launch.beside.begin(), launch.beside.end(), has_begun);
}

bool Machine::has_new_work(const Part& part) const {
  switch (part.state) {
    case Part::State::not_begun: return may_begin(*part.launch);
    case Part::State::running: return true;
    case Part::State::waiting: return part.seen_changes != changes_ || poisoned_;
    case Part::State::arriving:
    case Part::State::held:
    case Part::State::ended: return false;
  }
  return false;
}

void Machine::resume(Part& part) {
  if (part.state == Part::State::not_begun) {
    ++parts_begun_[static_cast<std::size_t>(part.launch_id)];
    on_begin(part);
    part.fiber->start([this, &part] {
      program_.run(*this, part);
      finish(part);
    });
  }
  part.state = Part::State::running;
  part.fiber->resume();
  if (part.state != Part::State::running || !part.fiber->has_ended()) return;
  part.state = Part::State::ended;
  --parts_left_[static_cast<std::size_t>(part.launch_id)];
  on_end(part);
}

void Machine::park(Part& part, Part::State state) {
  part.state = state;
  part.fiber->leave();
}

bool Machine::wait(Part& part, const protocol::Spot& spot) {
  if (poisoned_) return false;
  if (part.may_look_again) {
    part.may_look_again = false;
    return true;
  }
  part.spot = spot;
  park(part, Part::State::waiting);
  return !poisoned_;
}

void Machine::raise(Part& part, protocol::FaultKind kind, const protocol::Spot& spot) {
  if (!fault_) fault_ = RaisedFault{kind, spot, part.launch->rank, part.launch->call};
}

void Machine::violate(Property property, std::string text) {
  if (!violation_) violation_ = Violation{property, std::move(text)};
}

void Machine::fail(Part& part, Property property, std::string text) {
  violate(property, name_of(part) + ": " + std::move(text));
  park(part, Part::State::held);  // for good: an execution with a violation goes no further
}

void Machine::conclude() {
  if (is_over()) return;
  std::string waiting;
  for (const Part& part : parts_) {
    if (part.state != Part::State::waiting) continue;
    waiting += fmt::format("\n  {} waits for ever at {}", name_of(part), protocol::site_name(part.spot.site));
    if (part.spot.peer >= 0) waiting += fmt::format(", for rank {}", part.spot.peer);
  }
  const bool all_ended =
      std::all_of(parts_.begin(), parts_.end(), [](const Part& p) { return p.state == Part::State::ended; });
  const auto kind = fault_ ? fault_->kind : protocol::FaultKind::none;
  if (!all_ended)
    violate(Property::unending, "nothing can go on:" + waiting);
  else if (kind != program_.fault)
    violate(Property::unending, fmt::format("ended in '{}', not in '{}'", protocol::fault_kind_name(kind),
                                            protocol::fault_kind_name(program_.fault)));
}

}  // namespace moetail::explore
