// SPDX-License-Identifier: Apache-2.0
// What a wait that ended badly leaves behind: one record a box, written by the first waiter only.
#pragma once

#include "protocol/site.hpp"
#include "protocol/words.hpp"

namespace moetail::protocol {

enum class FaultKind : u32 {
  none = 0,
  deadline = 1,         ///< nobody served this wait in time
  poisoned = 2,         ///< peer `peer` faulted first and said so
  aborted = 3,          ///< the host called abort()
  header_mismatch = 4,  ///< rank and peer disagree about the call; `field` says in what
  map_index = 5,        ///< map[token, k] = seen is not below P = expected
  no_memory = 6,        ///< a launch of this rank got no memory; `site` is the last one that it passed
};

/// The field of a call header in which two ranks differ.
enum class HeaderField : u32 { none = 0, batch = 1, mode = 2, layer = 3, shape = 4 };

/// Lives in host-visible memory. Fields that do not apply are -1.
struct FaultRecord {
  FaultKind kind = FaultKind::none;
  Site site = Site::none;
  HeaderField field = HeaderField::none;
  i32 rank = -1;   ///< who waited
  i32 peer = -1;   ///< whose data was missing or wrong
  i32 layer = 0;   ///< label of the layer, 0: none
  i32 token = -1;  ///< row of the batch
  i32 k = -1;      ///< route of the token (map_index, rows_poll)
  i32 slot = -1;
  u64 epoch = 0;
  u64 expected = 0;
  u64 seen = 0;
  u64 elapsed_ns = 0;
};

/// What a rank's launches on a GPU and the host tell each other, one a rank in mapped host memory. The record is written once, before
/// `state` becomes kWritten.
struct FaultCell {
  static constexpr u32 kEmpty = 0, kWritten = 2;

  u32 state = kEmpty;
  u32 stop = 0;  ///< set by the host: abort() ends the waits of this rank
  FaultRecord record;
};

MOETAIL_FN constexpr const char* fault_kind_name(FaultKind kind) {
  switch (kind) {
    case FaultKind::none: return "none";
    case FaultKind::deadline: return "deadline passed";
    case FaultKind::poisoned: return "a peer faulted";
    case FaultKind::aborted: return "aborted by the host";
    case FaultKind::header_mismatch: return "ranks disagree";
    case FaultKind::map_index: return "map index out of range";
    case FaultKind::no_memory: return "out of memory";
  }
  return "?";
}

MOETAIL_FN constexpr const char* header_field_name(HeaderField field) {
  switch (field) {
    case HeaderField::none: return "none";
    case HeaderField::batch: return "batch";
    case HeaderField::mode: return "mode";
    case HeaderField::layer: return "layer";
    case HeaderField::shape: return "shape or eps";
  }
  return "?";
}

}  // namespace moetail::protocol
