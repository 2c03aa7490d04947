// SPDX-License-Identifier: Apache-2.0
// The second opinion: memory as a machine would have it, with a store buffer a part whose words arrive in any order. It steps through one
// interleaving at a time and argues about nothing, so it can judge the execution graphs, on small programs over all interleavings.
#pragma once

#include <functional>
#include <unordered_map>
#include <vector>

#include "verify/explore/machine.hpp"

namespace moetail::explore {

class BufferMachine final : public Machine {
 public:
  /// `choose(n)` decides every step: one of 0 .. n - 1.
  BufferMachine(const Program& program, std::function<int(int)> choose, bool ordered_add);

  void run();

  bool poll(Part& part, u64 address, int count, u32* values) override;
  u32 reread(Part& part, u64 address) override;
  u64 look(Part& part, u64 address) override;
  void publish(Part& part, u64 address, u32 value) override;
  void erase(Part& part, u64 address) override;
  void set(Part& part, u64 address, u64 value) override;
  u64 add(Part& part, u64 address, u64 value) override;

 private:
  struct Stored {
    u64 address;
    u64 value;
    int call;  ///< of whoever published it; -1 for the sentinel and for control words
  };

  void finish(Part& part) override;
  /// Lets others go on between two steps of a part.
  void pass(Part& part) { park(part, Part::State::running); }
  Stored seen(const Part& part, u64 address) const;
  void buffer(Part& part, u64 address, u64 value, int call);
  /// Lets the buffered store `index` of a part arrive.
  void arrive(int part, std::size_t index);
  void wait_for_arrival(Part& part);

  std::function<int(int)> choose_;
  const bool ordered_add_;
  std::unordered_map<u64, Stored> memory_;
  std::vector<std::vector<Stored>> buffers_;  // [part], in program order
};

}  // namespace moetail::explore
