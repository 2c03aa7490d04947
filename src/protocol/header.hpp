// SPDX-License-Identifier: Apache-2.0
// The call header: 64 bits in which every rank tells every peer what it is about to run, compared before any
// data is used.
#pragma once

#include "protocol/fault.hpp"
#include "protocol/mode.hpp"
#include "protocol/numerics.hpp"
#include "protocol/sentinel.hpp"
#include "protocol/shape.hpp"

namespace moetail::protocol {

struct Header {
  u32 batch = 0;  ///< 16 bits
  u32 mode = 0;   ///< 3 bits
  u32 layer = 0;  ///< 16 bits; 0 is not compared
  u32 shape = 0;  ///< 27 bits of a hash of shape and eps
};

/// FNV-1a over the sizes and the bits of eps, folded to 27 bits: a rank of another model is found in its
/// first call.
MOETAIL_FN constexpr u32 hash_shape(const Shape& shape, u32 eps_bits) {
  const u32 fields[7] = {static_cast<u32>(shape.hidden),
                         static_cast<u32>(shape.latent),
                         static_cast<u32>(shape.ranks),
                         static_cast<u32>(shape.top_k),
                         static_cast<u32>(shape.capacity),
                         static_cast<u32>(shape.poll_capacity),
                         eps_bits};
  u32 hash = 2166136261u;
  for (u32 field : fields)
    for (int byte = 0; byte < 4; ++byte) hash = (hash ^ (field >> (8 * byte) & 0xFFu)) * 16777619u;
  return (hash ^ hash >> 27) & 0x07FFFFFFu;
}

// Bit 31 of each half stays 0: neither half can be the sentinel word.
MOETAIL_FN constexpr u64 pack_header(const Header& header) {
  const u32 low = (header.batch & 0xFFFFu) | (header.mode & 7u) << 16 | (header.shape >> 15 & 0xFFFu) << 19;
  const u32 high = (header.layer & 0xFFFFu) | (header.shape & 0x7FFFu) << 16;
  return static_cast<u64>(high) << 32 | low;
}

MOETAIL_FN constexpr Header unpack_header(u64 word) {
  const u32 low = static_cast<u32>(word), high = static_cast<u32>(word >> 32);
  return Header{low & 0xFFFFu, low >> 16 & 7u, high & 0xFFFFu,
                (low >> 19 & 0xFFFu) << 15 | (high >> 16 & 0x7FFFu)};
}

/// The first field in which two headers differ.
MOETAIL_FN constexpr HeaderField header_difference(const Header& mine, const Header& theirs) {
  if (mine.shape != theirs.shape) return HeaderField::shape;
  if (mine.layer != theirs.layer && mine.layer != 0 && theirs.layer != 0) return HeaderField::layer;
  if (mine.batch != theirs.batch) return HeaderField::batch;
  if (mine.mode != theirs.mode) return HeaderField::mode;
  return HeaderField::none;
}

MOETAIL_FN constexpr u64 header_field_value(const Header& header, HeaderField field) {
  switch (field) {
    case HeaderField::batch: return header.batch;
    case HeaderField::mode: return header.mode;
    case HeaderField::layer: return header.layer;
    case HeaderField::shape: return header.shape;
    case HeaderField::none: break;
  }
  return 0;
}

}  // namespace moetail::protocol
