// SPDX-License-Identifier: Apache-2.0
#include "verify/explore/buffer_machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "protocol/sentinel.hpp"

namespace moetail::explore {

using protocol::kEmptyWord;

BufferMachine::BufferMachine(const Program& program, std::function<int(int)> choose, bool ordered_add)
    : Machine(program), choose_(std::move(choose)), ordered_add_(ordered_add), buffers_(parts().size()) {}

void BufferMachine::run() {
  while (!is_over()) {
    std::vector<int> ready;
    std::vector<std::pair<int, std::size_t>> stores;
    for (const Part& part : parts()) {
      if (has_new_work(part)) ready.push_back(part.id);
      const auto& buffered = buffers_[static_cast<std::size_t>(part.id)];
      for (std::size_t i = 0; i < buffered.size(); ++i) {
        // Stores of one part to one word keep their order.
        const bool is_first =
            std::none_of(buffered.begin(), buffered.begin() + static_cast<std::ptrdiff_t>(i),
                         [&](const Stored& s) { return s.address == buffered[i].address; });
        if (is_first) stores.emplace_back(part.id, i);
      }
    }
    const auto num_ready = static_cast<int>(ready.size()), num_stores = static_cast<int>(stores.size());
    if (num_ready + num_stores == 0) {
      if (!fault() || is_poisoned()) break;
      poison();
      continue;
    }
    const int choice = num_ready + num_stores > 1 ? choose_(num_ready + num_stores) : 0;
    if (choice < num_ready) {
      resume(parts()[static_cast<std::size_t>(ready[static_cast<std::size_t>(choice)])]);
    } else {
      const auto& [part, index] = stores[static_cast<std::size_t>(choice - num_ready)];
      arrive(part, index);
    }
  }
  conclude();
}

// --- buffers ---------------------------------------------------------------------------------------------

BufferMachine::Stored BufferMachine::seen(const Part& part, u64 address) const {
  const auto& buffered = buffers_[static_cast<std::size_t>(part.id)];
  const auto own = std::find_if(buffered.rbegin(), buffered.rend(),
                                [&](const Stored& stored) { return stored.address == address; });
  if (own != buffered.rend()) return *own;
  const auto found = memory_.find(address);
  return found != memory_.end() ? found->second : Stored{address, program().initial(address), -1};
}

void BufferMachine::buffer(Part& part, u64 address, u64 value, int call) {
  // Nobody sees this step: others need not come between it and the next one.
  buffers_[static_cast<std::size_t>(part.id)].push_back({address, value, call});
}

void BufferMachine::arrive(int part, std::size_t index) {
  auto& buffered = buffers_[static_cast<std::size_t>(part)];
  memory_[buffered[index].address] = buffered[index];
  buffered.erase(buffered.begin() + static_cast<std::ptrdiff_t>(index));
  memory_changed();
}

void BufferMachine::finish(Part& part) {
  // A launch is complete when everything it stored is there.
  while (!buffers_[static_cast<std::size_t>(part.id)].empty()) wait_for_arrival(part);
}

void BufferMachine::wait_for_arrival(Part& part) {
  begin_look(part);
  park(part, Part::State::waiting);
}

// --- what parts do ---------------------------------------------------------------------------------------

bool BufferMachine::poll(Part& part, u64 address, int count, u32* values) {
  bool all = true;
  int calls[4];
  for (int word = 0; word < count; ++word) {
    if (word > 0) pass(part);
    const Stored stored = seen(part, address + 4 * static_cast<u64>(word));
    values[word] = static_cast<u32>(stored.value);
    calls[word] = stored.call;
    all &= values[word] != kEmptyWord;
  }
  for (int word = 0; all && word < count; ++word)
    if (calls[word] != part.launch->call)
      fail(part, Property::stale, fmt::format("takes a word of call {} for its own", calls[word]));
  return all;
}

u32 BufferMachine::reread(Part& part, u64 address) {
  const Stored stored = seen(part, address);
  if (stored.call != part.launch->call)
    fail(part, stored.value == kEmptyWord ? Property::erased : Property::stale,
         "uses a word that is not what it was: " + program().name_of(address));
  return static_cast<u32>(stored.value);
}

u64 BufferMachine::look(Part& part, u64 address) {
  pass(part);
  return seen(part, address).value;
}

void BufferMachine::publish(Part& part, u64 address, u32 value) {
  buffer(part, address, value, part.launch->call);
}
void BufferMachine::erase(Part& part, u64 address) {
  buffer(part, address, kEmptyWord, -1);
}
void BufferMachine::set(Part& part, u64 address, u64 value) {
  buffer(part, address, value, -1);
}

u64 BufferMachine::add(Part& part, u64 address, u64 value) {
  pass(part);
  if (ordered_add_) finish(part);
  const u64 old = seen(part, address).value;
  memory_[address] = {address, old + value, -1};
  memory_changed();
  return old;
}

}  // namespace moetail::explore
