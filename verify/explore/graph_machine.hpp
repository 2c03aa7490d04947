// SPDX-License-Identifier: Apache-2.0
// Memory as an execution graph: every word has the history of its stores, and a load sees any store of it that nothing which is known
// to have happened has replaced. docs/explorer.md, "The memory".
#pragma once

#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "verify/explore/decisions.hpp"
#include "verify/explore/event_set.hpp"
#include "verify/explore/machine.hpp"

namespace moetail::explore {

struct Event {
  enum class Kind { publish, erase, set, add, poll, reread, look };

  Kind kind;
  int part;
  u64 address;
  u64 value;
  protocol::Site site;
  int source = kInitialEvent;  ///< of a load: the store it saw
  bool had_choice = false;     ///< of a look: other stores were tried as well
  int view = 0;                ///< of a load: what it could not be older than
  EventSet before{};           ///< what has happened before it, as seen by anybody who sees it
};

/// A look of one part at one control word.
using Look = std::pair<int, u64>;

struct GraphOptions {
  bool ordered_add = true;  ///< the arrival counter is acquire and release, not relaxed
  std::set<Look>
      late_looks;  ///< that wait until nothing else can go on, so that they may see what came meanwhile
};

class GraphMachine final : public Machine {
 public:
  GraphMachine(const Program& program, Decisions& decisions, const GraphOptions& options);

  void run();
  /// Events, and those of them that no earlier execution had in the same place.
  int num_events() const { return static_cast<int>(events_.size()); }
  int num_new_events() const { return num_new_; }
  /// Looks that could have seen another control word than any that was tried.
  const std::set<Look>& missed() const { return missed_; }
  /// After a violation: what led to it, one step a line.
  std::vector<std::string> trace() const;

  bool poll(Part& part, u64 address, int count, u32* values) override;
  u32 reread(Part& part, u64 address) override;
  u64 look(Part& part, u64 address) override;
  void publish(Part& part, u64 address, u32 value) override;
  void erase(Part& part, u64 address) override;
  void set(Part& part, u64 address, u64 value) override;
  u64 add(Part& part, u64 address, u64 value) override;

 private:
  struct Knowledge {
    EventSet past;  ///< whoever sees a store of this part from now on knows of these events
    EventSet own;
    int view = 0;                          ///< index into views_: loads of this part are no older than that
    std::unordered_map<u64, int> touched;  ///< the store that it has made or seen last, by word
    std::unordered_set<u64> probed;        ///< words that it was once shown missing
  };

  void on_begin(Part& part) override;
  void on_end(Part& part) override;
  bool let_one_go();

  const std::vector<int>& history(u64 address) { return histories_[address]; }
  /// First index into the word's history that a load of `part` may see; -1 is the initial value.
  int oldest(const Part& part, u64 address);
  bool is_empty_at(u64 address, int id) const;
  u64 value_at(u64 address, int id) const;
  /// Shows the part a word that is there as missing, each once: a word that has arrived for others may be late here.
  bool probe(Part& part, u64 address, int count, u32* values);
  int record_load(Part& part, Event::Kind kind, u64 address, int source);
  int record_store(Part& part, Event::Kind kind, u64 address, u64 value);
  int append(Event event);

  /// Every load against the stores that came after it in this execution, but need not have.
  void check_loads();
  void check_load(int id);
  void miss(const Event& look);
  void check_lost();
  void blame(Property property, const std::string& text, std::vector<int> focus);
  std::string text_of(int id) const;
  Knowledge& knowledge(const Part& part) { return knowledge_[static_cast<std::size_t>(part.id)]; }
  const Event& event(int id) const { return events_[static_cast<std::size_t>(id)]; }
  int call_of(int id) const;

  Decisions& decisions_;
  const GraphOptions& options_;
  std::set<Look> missed_;
  std::vector<Event> events_;
  int num_new_ = 0;
  std::unordered_map<u64, std::vector<int>> histories_;
  std::vector<EventSet> views_;
  std::vector<Knowledge> knowledge_;  // [part]
  std::vector<int> start_view_;       // [launch], -1: has not begun
  std::vector<EventSet> end_;         // [launch]
  std::vector<int> focus_;            // of the violation: its trace is what happened before these
};

}  // namespace moetail::explore
