// SPDX-License-Identifier: Apache-2.0
#include "moetail/moetail.hpp"

namespace moetail {
namespace {

/// A header field's value as people know it: a mode by its name.
std::string header_value(protocol::HeaderField field, std::uint64_t value) {
  if (field == protocol::HeaderField::mode && value <= static_cast<std::uint64_t>(Mode::twoshot))
    return protocol::mode_name(static_cast<Mode>(value));
  return std::to_string(value);
}

}  // namespace

std::string FaultReport::text() const {
  using protocol::FaultKind;
  const auto& r = record;
  std::string where = fmt::format("rank {}", r.rank);
  if (r.layer != 0) where += fmt::format(", layer {}", r.layer);
  where += fmt::format(", call {} (slot {})", r.epoch + 1, r.slot);
  switch (r.kind) {
    case FaultKind::none: return "no fault";
    case FaultKind::deadline: {
      std::string what = r.peer >= 0 ? fmt::format("waited for rank {}", r.peer) : std::string("waited");
      if (r.token >= 0) what += fmt::format(", token {}", r.token);
      if (r.k >= 0) what += fmt::format(", route {}", r.k);
      return fmt::format("fault at {}: {}: {} and nothing came within {:.3f} s", site_name(r.site), where,
                         what, static_cast<double>(r.elapsed_ns) * 1e-9);
    }
    case FaultKind::poisoned:
      return fmt::format("fault at {}: {}: rank {} faulted first", site_name(r.site), where, r.peer);
    case FaultKind::aborted:
      return fmt::format("fault at {}: {}: aborted by the host", site_name(r.site), where);
    case FaultKind::header_mismatch:
      return fmt::format("fault at {}: {}: ranks {} and {} disagree: {} is {} here and {} there",
                         site_name(r.site), where, r.rank, r.peer, header_field_name(r.field),
                         header_value(r.field, r.expected), header_value(r.field, r.seen));
    case FaultKind::map_index:
      return fmt::format(
          "fault at {}: {}: map[token {}, k {}] = {}: accepted is below P = {} (negative: a dropped route)",
          site_name(r.site), where, r.token, r.k, r.seen, r.expected);
    case FaultKind::no_memory:
      return fmt::format("fault at {}: {}: the machine has no more memory for this rank's launch",
                         site_name(r.site), where);
  }
  return "unknown fault";
}

}  // namespace moetail
