// SPDX-License-Identifier: Apache-2.0
// What an execution graph says once it is complete: loads that could have seen another store, words that were lost; and the trace of a
// violation.
#include <fmt/format.h>

#include <algorithm>

#include "verify/explore/graph_machine.hpp"

namespace moetail::explore {

using Kind = Event::Kind;

namespace {

bool is_load(Kind kind) {
  return kind == Kind::poll || kind == Kind::reread || kind == Kind::look;
}

const char* verb_of(Kind kind) {
  switch (kind) {
    case Kind::publish: return "publishes";
    case Kind::erase: return "re-arms";
    case Kind::set: return "sets";
    case Kind::add: return "adds to";
    case Kind::poll: return "takes";
    case Kind::reread: return "uses";
    case Kind::look: return "reads";
  }
  return "?";
}

/// A name without its word: "r0 latent[1] from r1, row 0".
std::string row_of(const std::string& name) {
  return name.substr(0, name.find(", word"));
}

}  // namespace

void GraphMachine::check_loads() {
  for (int id = 0; id < num_events() && !is_over(); ++id)
    if (is_load(event(id).kind)) check_load(id);
}

void GraphMachine::check_load(int id) {
  const Event& load = event(id);
  const auto& stores = history(load.address);
  const auto seen = std::find(stores.begin(), stores.end(), load.source);
  const int place = seen == stores.end() ? -1 : static_cast<int>(seen - stores.begin());
  const std::string reader = name_of(parts()[static_cast<std::size_t>(load.part)]);
  for (int i = place + 1; i < static_cast<int>(stores.size()); ++i) {
    const int store = stores[static_cast<std::size_t>(i)];
    if (event(store).before.has(id) || event(store).part == load.part) continue;
    if (load.kind == Kind::look) {
      miss(load);
    } else if (event(store).kind == Kind::erase) {
      blame(Property::erased,
            reader + " has taken this word, but nothing keeps the re-arm from arriving before that",
            {id, store});
    } else {
      blame(Property::stale, reader + " has taken this word, but may as well take a later one", {id, store});
    }
  }
  const EventSet& view = views_[static_cast<std::size_t>(load.view)];
  for (int i = place; i > 0 && load.kind != Kind::reread; --i) {
    const int newer = stores[static_cast<std::size_t>(i)];
    if (view.has(newer) || (event(newer).part == load.part && newer < id)) break;
    const int older = stores[static_cast<std::size_t>(i - 1)];
    if (load.kind == Kind::look) {
      miss(load);
    } else if (!is_empty_at(load.address, older)) {
      blame(Property::stale, reader + " may as well take a word of an earlier call", {id, older});
    }
  }
}

void GraphMachine::miss(const Event& look) {
  const Look missed{look.part, look.address};
  if (!look.had_choice && options_.late_looks.count(missed) == 0) missed_.insert(missed);
}

void GraphMachine::check_lost() {
  for (const Part& part : parts()) {
    if (part.state != Part::State::waiting) continue;
    for (auto& [address, stores] : histories_) {
      if (stores.size() < 2 || event(stores.back()).kind != Kind::erase) continue;
      const int lost = stores[stores.size() - 2];
      const bool is_taken = std::any_of(events_.begin(), events_.end(), [&](const Event& e) {
        return e.kind == Kind::poll && e.source == lost;
      });
      if (event(lost).kind == Kind::publish && call_of(lost) == part.launch->call && !is_taken)
        blame(Property::erased, fmt::format("{} waits for a word that was re-armed unread", name_of(part)),
              {lost, stores.back()});
    }
  }
}

void GraphMachine::blame(Property property, const std::string& text, std::vector<int> focus) {
  if (is_over()) return;
  focus_ = std::move(focus);
  std::string history_text;
  for (int id : focus_) history_text += "\n  " + text_of(id);
  violate(property, text + ":" + history_text);
}

std::string GraphMachine::text_of(int id) const {
  const Event& e = event(id);
  std::string text = fmt::format("{} {} {}", name_of(parts()[static_cast<std::size_t>(e.part)]),
                                 verb_of(e.kind), program().name_of(e.address));
  if (e.kind == Kind::set || e.kind == Kind::add || e.kind == Kind::look)
    text += fmt::format(" = {:#x}", e.value);
  if (is_load(e.kind) && e.kind != Kind::look && e.source != kInitialEvent)
    text +=
        fmt::format(", published by {}", name_of(parts()[static_cast<std::size_t>(event(e.source).part)]));
  return text + fmt::format("  [{}]", protocol::site_name(e.site));
}

std::vector<std::string> GraphMachine::trace() const {
  // Only what led there; where nothing is at fault but that nobody goes on, everything.
  std::vector<bool> is_part_of_it(events_.size(), focus_.empty());
  for (int focus : focus_)
    for (int id = 0; id < num_events(); ++id)
      if (event(focus).before.has(id)) is_part_of_it[static_cast<std::size_t>(id)] = true;
  for (int focus : focus_) is_part_of_it[static_cast<std::size_t>(focus)] = false;
  std::vector<std::string> lines;
  std::string last;
  int count = 0;
  const auto flush = [&] {
    if (count > 1) lines.back() += fmt::format(", {} words", count);
  };
  for (int id = 0; id < num_events(); ++id) {
    const Event& e = event(id);
    // A word used where it was taken from says nothing new.
    if (!is_part_of_it[static_cast<std::size_t>(id)] || e.kind == Kind::reread) continue;
    std::string line = fmt::format("{} {} {}", name_of(parts()[static_cast<std::size_t>(e.part)]),
                                   verb_of(e.kind), row_of(program().name_of(e.address)));
    if (e.kind == Kind::set || e.kind == Kind::add || e.kind == Kind::look)
      line += fmt::format(" = {:#x}", e.value);
    if (line == last) {
      ++count;
      continue;
    }
    flush();
    count = 1;
    last = line;
    lines.push_back(line);
  }
  flush();
  return lines;
}

}  // namespace moetail::explore
