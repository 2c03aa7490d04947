// SPDX-License-Identifier: Apache-2.0
// The memory policy of src/protocol over an explored machine. Boxes are addresses only: nothing is ever stored there.
#pragma once

#include <bit>

#include "protocol/mailbox.hpp"
#include "verify/explore/machine.hpp"

namespace moetail::explore {

using protocol::i32;
using protocol::Line;
using protocol::u8;

inline constexpr u64 kBoxStride = u64{1} << 32;
inline constexpr u64 kCommonBox = 64 * kBoxStride;

inline u8* box_address(int rank) {
  return std::bit_cast<u8*>(static_cast<u64>(rank + 1) * kBoxStride);
}

/// One part of a launch, as the protocol's functions see memory.
class ModelMemory {
 public:
  ModelMemory(Machine& machine, Part& part) : machine_(machine), part_(part) {}

  Line load(const Line* from) const {
    Line line;
    machine_.poll(part_, address(from), 4, line.word);
    return line;
  }
  u32 load(const u32* from) const {
    u32 word = 0;
    machine_.poll(part_, address(from), 1, &word);
    return word;
  }
  u64 load(const u64* from) const { return machine_.look(part_, address(from)); }
  void store(Line* to, const Line& line) const {
    for (u64 i = 0; i < 4; ++i) machine_.publish(part_, address(to) + 4 * i, line.word[i]);
  }
  void store(u32* to, u32 word) const { machine_.publish(part_, address(to), word); }
  void store(u64* to, u64 word) const { machine_.set(part_, address(to), word); }
  void arm(Line* to) const {
    for (u64 i = 0; i < 4; ++i) machine_.erase(part_, address(to) + 4 * i);
  }
  void arm(u32* to) const { machine_.erase(part_, address(to)); }
  u64 add(u64* to, u64 value) const { return machine_.add(part_, address(to), value); }

  int ticket() const {
    machine_.begin_look(part_);
    return 0;
  }
  protocol::WaitVerdict pause(u32, int, int, const protocol::Spot& spot) const {
    return machine_.wait(part_, spot) ? protocol::WaitVerdict::go_on : protocol::WaitVerdict::ended;
  }
  void raise(protocol::FaultKind kind, const protocol::Spot& spot) const {
    machine_.raise(part_, kind, spot);
  }

  /// A line that a wait has found there, read once more where it lies.
  Line use(const Line* from) const {
    Line line;
    for (u64 i = 0; i < 4; ++i) line.word[i] = machine_.reread(part_, address(from) + 4 * i);
    return line;
  }
  void at(protocol::Site site) const { part_.site = site; }
  void fail(std::string text) const { machine_.fail(part_, Property::output, std::move(text)); }
  bool is_poisoned() const { return machine_.is_poisoned(); }
  int part() const { return part_.index; }
  int parts() const { return part_.launch->parts; }
  int call() const { return part_.launch->call; }

 private:
  template <class Word>
  static u64 address(const Word* word) {
    return std::bit_cast<u64>(word);
  }

  Machine& machine_;
  Part& part_;
};

}  // namespace moetail::explore
