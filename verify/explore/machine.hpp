// SPDX-License-Identifier: Apache-2.0
// What runs a program of launches: parts as fibers, started in the order that the launches ask for, over a memory that a subclass gives.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "protocol/fault.hpp"
#include "protocol/site.hpp"
#include "protocol/wait.hpp"
#include "verify/explore/fiber.hpp"

namespace moetail::explore {

using protocol::u32;
using protocol::u64;

/// One launch of one rank.
struct Launch {
  int rank = 0;
  int call = 0;
  const char* kernel = "";  ///< "push", "publish", "fill", "tail", "take"
  int parts = 1;            ///< blocks that run it, all of them resident
  std::vector<int> after;   ///< launches that are complete when it begins
  std::vector<int>
      beside;  ///< launches that have only begun when it begins: it is early, or lacks its dependency wait
};

/// One block of a launch.
struct Part {
  enum class State { not_begun, running, waiting, arriving, held, ended };

  int id = 0;
  int launch_id = 0;
  const Launch* launch = nullptr;
  int index = 0;  ///< 0 .. launch->parts - 1
  State state = State::not_begun;
  protocol::Site site = protocol::Site::none;
  protocol::Spot spot{};        ///< what it waits for
  u64 seen_changes = 0;         ///< of memory, when it began to look
  bool may_look_again = false;  ///< the next wait is none: what it looked for may be there at the next look
  Fiber* fiber = nullptr;
};

enum class Property { none, stale, erased, unending, output, order };
/// "no stale word is taken for new", ...
const char* property_text(Property property);

/// What went wrong in an execution.
struct Violation {
  Property property = Property::none;
  std::string text;
};

/// A named fault that a part raised, with where it stood.
struct RaisedFault {
  protocol::FaultKind kind;
  protocol::Spot spot;
  int rank = 0;
  int call = 0;
};

class Machine;

/// What is explored.
struct Program {
  virtual ~Program() = default;

  std::vector<Launch> launches;
  std::function<void(Machine&, Part&)> run;               ///< the whole of one part, on its fiber
  std::function<std::string(u64)> name_of;                ///< the word at an address, for people
  std::function<u64(u64)> initial;                        ///< what a word holds before the first call
  protocol::FaultKind fault = protocol::FaultKind::none;  ///< in which every execution has to end
};

class Machine {
 public:
  explicit Machine(const Program& program);
  virtual ~Machine() = default;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // What a part does to memory. An address is a 32-bit word's, or a control word's (64 bits).
  /// Reads `count` words that follow each other if all of them are there. Otherwise those that are not hold the sentinel.
  virtual bool poll(Part& part, u64 address, int count, u32* values) = 0;
  /// Reads a word that a poll has found there, once more.
  virtual u32 reread(Part& part, u64 address) = 0;
  virtual u64 look(Part& part, u64 address) = 0;
  virtual void publish(Part& part, u64 address, u32 value) = 0;
  virtual void erase(Part& part, u64 address) = 0;
  virtual void set(Part& part, u64 address, u64 value) = 0;
  /// Returns the old value. Parks until the scheduler lets this part be next to arrive.
  virtual u64 add(Part& part, u64 address, u64 value) = 0;

  /// From a part, before a look at what it may then wait for.
  void begin_look(Part& part) const { part.seen_changes = changes_; }
  /// From a part: waits until memory has changed since the look began. False where its box is poisoned meanwhile.
  bool wait(Part& part, const protocol::Spot& spot);
  /// From a part: a named fault. Every wait of every rank ends once nothing else can go on, which is as late as poison may be seen.
  void raise(Part& part, protocol::FaultKind kind, const protocol::Spot& spot);
  bool is_poisoned() const { return poisoned_; }
  /// From a part, whose execution ends here.
  void fail(Part& part, Property property, std::string text);

  const Program& program() const { return program_; }
  const std::vector<Part>& parts() const { return parts_; }
  const std::optional<Violation>& violation() const { return violation_; }
  const std::optional<RaisedFault>& fault() const { return fault_; }
  /// "r0 call 2 tail.1"
  std::string name_of(const Part& part) const;

 protected:
  virtual void on_begin(Part&) {}
  /// On the part's fiber, behind all that it does.
  virtual void finish(Part&) {}
  virtual void on_end(Part&) {}

  std::vector<Part>& parts() { return parts_; }
  bool may_begin(const Launch& launch) const;
  /// Begins or goes on with a part until it waits, arrives or ends.
  void resume(Part& part);
  /// From a part.
  void park(Part& part, Part::State state);
  bool has_new_work(const Part& part) const;
  void poison() { poisoned_ = true; }
  /// All parts have ended, or a violation: what no part could go on with.
  void conclude();
  void violate(Property property, std::string text);
  bool is_over() const { return violation_.has_value(); }
  void memory_changed() { ++changes_; }

 private:
  const Program& program_;
  std::vector<Part> parts_;
  std::vector<int> parts_left_;   // [launch]
  std::vector<int> parts_begun_;  // [launch]
  std::optional<Violation> violation_;
  std::optional<RaisedFault> fault_;
  bool poisoned_ = false;
  u64 changes_ = 1;
};

}  // namespace moetail::explore
