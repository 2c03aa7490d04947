// SPDX-License-Identifier: Apache-2.0
// The boxes of a group in plain memory and a memory policy of one thread: the protocol's verbs with nothing
// beside them.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "protocol/mailbox.hpp"

namespace moetail::testing {

/// Counts what the protocol does to memory. A wait ends when `on_pause` says so; it may deliver data
/// meanwhile.
struct PlainMemory {
  using Line = protocol::Line;
  using u32 = protocol::u32;
  using u64 = protocol::u64;

  Line load(const Line* from) { return *from; }
  u32 load(const u32* from) { return *from; }
  u64 load(const u64* from) { return *from; }
  void store(Line* to, const Line& line) { *to = line; }
  void store(u32* to, u32 word) { *to = word; }
  void store(u64* to, u64 word) { *to = word; }
  void arm(Line* to) {
    std::memset(to, 0xFF, sizeof(Line));
    armed_bytes += sizeof(Line);
  }
  void arm(u32* to) {
    std::memset(to, 0xFF, sizeof(u32));
    armed_bytes += sizeof(u32);
  }
  u64 add(u64* to, u64 value) {
    const u64 old = *to;
    *to += value;
    return old;
  }

  u64 ticket() { return 0; }
  protocol::WaitVerdict pause(u32 spins, u64, int missing, const protocol::Spot& spot) {
    return on_pause(spins, missing, spot);
  }
  void raise(protocol::FaultKind kind, const protocol::Spot& spot) {
    faults.push_back(kind);
    last_spot = spot;
  }

  std::function<protocol::WaitVerdict(u32 spins, int missing, const protocol::Spot& spot)> on_pause =
      [](u32, int, const protocol::Spot&) { return protocol::WaitVerdict::expired; };
  std::vector<protocol::FaultKind> faults;
  protocol::Spot last_spot;
  std::size_t armed_bytes = 0;
};

/// The boxes of all ranks, filled with one byte; with a common copy of what all of them get, or without.
class PlainGroup {
 public:
  PlainGroup(const protocol::Shape& shape, unsigned char fill, bool has_common = false)
      : layout_(protocol::make_layout(shape)), ranks_(shape.ranks), has_common_(has_common) {
    for (int box = 0; box < ranks_ + (has_common ? 1 : 0); ++box) {
      boxes_.push_back(std::make_unique<protocol::Line[]>(layout_.total_bytes / sizeof(protocol::Line)));
      std::memset(boxes_.back().get(), fill, layout_.total_bytes);
    }
  }

  const protocol::Layout& layout() const { return layout_; }
  protocol::BoxView view(int rank) const {
    protocol::BoxView view;
    view.layout = layout_;
    view.rank = rank;
    for (int peer = 0; peer < ranks_; ++peer)
      view.peer[peer] = reinterpret_cast<protocol::u8*>(boxes_[static_cast<std::size_t>(peer)].get());
    if (has_common_) view.common = reinterpret_cast<protocol::u8*>(boxes_.back().get());
    return view;
  }
  /// All bytes of the common copy, which has the layout of a box.
  std::vector<unsigned char> common_bytes() const { return bytes(ranks_); }
  /// All bytes of a rank's box.
  std::vector<unsigned char> bytes(int rank) const {
    const auto* begin = reinterpret_cast<const unsigned char*>(boxes_[static_cast<std::size_t>(rank)].get());
    return {begin, begin + layout_.total_bytes};
  }

 private:
  protocol::Layout layout_;
  int ranks_;
  bool has_common_;
  std::vector<std::unique_ptr<protocol::Line[]>> boxes_;
};

}  // namespace moetail::testing
