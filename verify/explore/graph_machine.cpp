// SPDX-License-Identifier: Apache-2.0
#include "verify/explore/graph_machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "protocol/sentinel.hpp"

namespace moetail::explore {

using Kind = Event::Kind;
using protocol::kEmptyWord;

GraphMachine::GraphMachine(const Program& program, Decisions& decisions, const GraphOptions& options)
    : Machine(program),
      decisions_(decisions),
      options_(options),
      knowledge_(parts().size()),
      start_view_(program.launches.size(), -1),
      end_(program.launches.size()) {}

// --- the order of launches -------------------------------------------------------------------------------

void GraphMachine::on_begin(Part& part) {
  const auto launch = static_cast<std::size_t>(part.launch_id);
  if (start_view_[launch] < 0) {
    EventSet start;
    for (int before : part.launch->after) start.join(end_[static_cast<std::size_t>(before)]);
    for (int before : part.launch->beside)
      start.join(views_[static_cast<std::size_t>(start_view_[static_cast<std::size_t>(before)])]);
    start_view_[launch] = static_cast<int>(views_.size());
    end_[launch].join(start);
    views_.push_back(std::move(start));
  }
  knowledge(part).view = start_view_[launch];
  knowledge(part).past = views_[static_cast<std::size_t>(start_view_[launch])];
}

void GraphMachine::on_end(Part& part) {
  EventSet& end = end_[static_cast<std::size_t>(part.launch_id)];
  end.join(knowledge(part).past);
  end.join(knowledge(part).own);
  memory_changed();
}

bool GraphMachine::let_one_go() {
  const auto is_arriving = [](const Part& p) { return p.state == Part::State::arriving; };
  std::vector<Part*> next;
  for (Part& part : parts()) {
    if (!is_arriving(part)) continue;
    if (!next.empty() && next.front()->launch_id != part.launch_id) continue;
    // All parts of its launch that are still to arrive stand here, so that each order is tried.
    const bool is_complete = std::all_of(parts().begin(), parts().end(), [&](const Part& p) {
      return p.launch_id != part.launch_id || is_arriving(p) || p.state == Part::State::ended;
    });
    if (is_complete) next.push_back(&part);
  }
  if (next.empty())
    for (Part& part : parts())
      if (is_arriving(part)) next.push_back(&part);
  if (next.empty())
    for (Part& part : parts())
      if (part.state == Part::State::held) next.push_back(&part);
  if (next.empty()) return false;
  resume(*next[static_cast<std::size_t>(decisions_.choose(static_cast<int>(next.size())))]);
  return true;
}

void GraphMachine::run() {
  for (bool goes_on = true; goes_on && !is_over();) {
    goes_on = false;
    for (Part& part : parts()) {
      if (is_over() || !has_new_work(part)) continue;
      resume(part);
      goes_on = true;
    }
    if (goes_on || is_over() || let_one_go()) {
      goes_on = true;
    } else if (fault() && !is_poisoned()) {
      poison();
      goes_on = true;
    }
  }
  if (is_over()) return;
  check_loads();
  if (is_over()) return;
  check_lost();
  conclude();
}

// --- histories -------------------------------------------------------------------------------------------

int GraphMachine::append(Event event) {
  if (decisions_.is_new()) ++num_new_;
  events_.push_back(std::move(event));
  return static_cast<int>(events_.size()) - 1;
}

int GraphMachine::call_of(int id) const {
  return id == kInitialEvent ? -1 : parts()[static_cast<std::size_t>(event(id).part)].launch->call;
}

u64 GraphMachine::value_at(u64 address, int id) const {
  return id == kInitialEvent ? program().initial(address) : event(id).value;
}

bool GraphMachine::is_empty_at(u64 address, int id) const {
  return id == kInitialEvent || event(id).kind == Kind::erase || value_at(address, id) == kEmptyWord;
}

int GraphMachine::oldest(const Part& part, u64 address) {
  const Knowledge& known = knowledge(part);
  const EventSet& view = views_[static_cast<std::size_t>(known.view)];
  const auto touched = known.touched.find(address);
  const auto& stores = history(address);
  int index = static_cast<int>(stores.size()) - 1;
  while (index >= 0) {
    const int store = stores[static_cast<std::size_t>(index)];
    if (view.has(store) || (touched != known.touched.end() && touched->second == store)) break;
    --index;
  }
  return index;
}

int GraphMachine::record_load(Part& part, Kind kind, u64 address, int source) {
  Knowledge& known = knowledge(part);
  if (source != kInitialEvent) {
    known.past.join(event(source).before);
    known.past.add(source);
  }
  Event load{kind, part.id, address, value_at(address, source), part.site};
  load.source = source;
  load.view = known.view;
  load.before = known.past;
  const int id = append(std::move(load));
  known.past.add(id);
  known.own.add(id);
  known.touched[address] = source;
  return id;
}

int GraphMachine::record_store(Part& part, Kind kind, u64 address, u64 value) {
  Knowledge& known = knowledge(part);
  auto& stores = histories_[address];
  Event store{kind, part.id, address, value, part.site};
  store.before = known.past;
  const int id = append(std::move(store));
  for (auto other = stores.rbegin(); other != stores.rend(); ++other) {
    if (known.past.has(*other) || event(*other).part == part.id) break;
    const Kind theirs = event(*other).kind;
    // Sentinel over sentinel is the same in either order.
    if (kind == Kind::erase && theirs == Kind::erase) continue;
    if (kind == Kind::erase || theirs == Kind::erase)
      blame(Property::erased,
            "nothing orders the re-arm of this word and its publication: the re-arm may arrive last",
            kind == Kind::erase ? std::vector{*other, id} : std::vector{id, *other});
    else if (kind == Kind::publish)
      blame(Property::stale, "nothing orders two publications of one word", {*other, id});
    else
      blame(Property::order, "nothing orders two stores to one control word", {*other, id});
    break;
  }
  stores.push_back(id);
  known.own.add(id);
  known.touched[address] = id;
  memory_changed();
  return id;
}

// --- what parts do ---------------------------------------------------------------------------------------

bool GraphMachine::probe(Part& part, u64 address, int count, u32* values) {
  for (int word = 0; word < count; ++word) {
    const u64 at = address + 4 * static_cast<u64>(word);
    const int first = oldest(part, at);
    const bool may_be_missing =
        is_empty_at(at, first < 0 ? kInitialEvent : history(at)[static_cast<std::size_t>(first)]);
    if (!may_be_missing || !knowledge(part).probed.insert(at).second) continue;
    values[word] = kEmptyWord;
    part.may_look_again = true;
    return true;
  }
  return false;
}

bool GraphMachine::poll(Part& part, u64 address, int count, u32* values) {
  int sources[4];
  bool all = true;
  for (int word = 0; word < count; ++word) {
    const u64 at = address + 4 * static_cast<u64>(word);
    const auto& stores = history(at);
    int found = kInitialEvent;
    for (int i = std::max(oldest(part, at), 0); i < static_cast<int>(stores.size()); ++i) {
      const int store = stores[static_cast<std::size_t>(i)];
      if (is_empty_at(at, store)) continue;
      // Either can be seen: a wrong one counts before a right one.
      if (found == kInitialEvent || call_of(store) != part.launch->call) found = store;
    }
    sources[word] = found;
    values[word] = found == kInitialEvent ? kEmptyWord : static_cast<u32>(value_at(at, found));
    all &= found != kInitialEvent;
  }
  if (!all || probe(part, address, count, values)) return false;
  for (int word = 0; word < count; ++word) {
    const int load = record_load(part, Kind::poll, address + 4 * static_cast<u64>(word), sources[word]);
    if (call_of(sources[word]) == part.launch->call) continue;
    blame(Property::stale,
          fmt::format("{} takes a word of call {} for its own", name_of(part), call_of(sources[word])),
          {load});
    park(part, Part::State::held);
  }
  return true;
}

u32 GraphMachine::reread(Part& part, u64 address) {
  const auto& stores = history(address);
  const int first = oldest(part, address);
  const int source = first < 0 ? kInitialEvent : stores[static_cast<std::size_t>(first)];
  const int load = record_load(part, Kind::reread, address, source);
  if (is_empty_at(address, source)) {
    blame(Property::stale, fmt::format("{} uses a word that has not arrived", name_of(part)), {load});
    park(part, Part::State::held);
  } else if (first + 1 < static_cast<int>(stores.size())) {
    blame(Property::erased, fmt::format("{} uses a word that may be another one by now", name_of(part)),
          {load, stores.back()});
    park(part, Part::State::held);
  }
  return static_cast<u32>(event(load).value);
}

u64 GraphMachine::look(Part& part, u64 address) {
  if (options_.late_looks.count({part.id, address}) != 0) park(part, Part::State::held);
  const auto& stores = history(address);
  const int first = oldest(part, address), options = static_cast<int>(stores.size()) - first;
  const int index = first + (options > 1 ? decisions_.choose(options) : 0);
  const int source = index < 0 ? kInitialEvent : stores[static_cast<std::size_t>(index)];
  const int load = record_load(part, Kind::look, address, source);
  events_[static_cast<std::size_t>(load)].had_choice = options > 1;
  return event(load).value;
}

void GraphMachine::publish(Part& part, u64 address, u32 value) {
  record_store(part, Kind::publish, address, value);
}
void GraphMachine::erase(Part& part, u64 address) {
  record_store(part, Kind::erase, address, kEmptyWord);
}
void GraphMachine::set(Part& part, u64 address, u64 value) {
  record_store(part, Kind::set, address, value);
}

u64 GraphMachine::add(Part& part, u64 address, u64 value) {
  park(part, Part::State::arriving);
  auto& stores = histories_[address];
  const int source = stores.empty() ? kInitialEvent : stores.back();
  const u64 old = value_at(address, source);
  Knowledge& known = knowledge(part);
  if (source != kInitialEvent) {
    known.past.join(event(source).before);
    known.past.add(source);
  }
  if (options_.ordered_add) {
    known.past.join(known.own);
    views_.push_back(known.past);
    known.view = static_cast<int>(views_.size()) - 1;
  }
  record_store(part, Kind::add, address, old + value);
  known.past.add(stores.back());
  return old;
}

}  // namespace moetail::explore
