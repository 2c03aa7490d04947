// SPDX-License-Identifier: Apache-2.0
// The table of element types and the checked size arithmetic.
#include "io/dtype.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstddef>
#include <limits>

namespace moetail::io {
namespace {

struct DtypeRow {
  Dtype dtype;
  std::string_view name;
  unsigned bits;
};

constexpr std::array<DtypeRow, 22> kDtypes{{
    {Dtype::boolean, "BOOL", 8},
    {Dtype::f4, "F4", 4},
    {Dtype::f6_e2m3, "F6_E2M3", 6},
    {Dtype::f6_e3m2, "F6_E3M2", 6},
    {Dtype::u8, "U8", 8},
    {Dtype::i8, "I8", 8},
    {Dtype::f8_e5m2, "F8_E5M2", 8},
    {Dtype::f8_e4m3, "F8_E4M3", 8},
    {Dtype::f8_e8m0, "F8_E8M0", 8},
    {Dtype::f8_e4m3fnuz, "F8_E4M3FNUZ", 8},
    {Dtype::f8_e5m2fnuz, "F8_E5M2FNUZ", 8},
    {Dtype::i16, "I16", 16},
    {Dtype::u16, "U16", 16},
    {Dtype::f16, "F16", 16},
    {Dtype::bf16, "BF16", 16},
    {Dtype::i32, "I32", 32},
    {Dtype::u32, "U32", 32},
    {Dtype::f32, "F32", 32},
    {Dtype::c64, "C64", 64},
    {Dtype::f64, "F64", 64},
    {Dtype::i64, "I64", 64},
    {Dtype::u64, "U64", 64},
}};

constexpr bool rows_follow_the_enum() {
  for (std::size_t i = 0; i < kDtypes.size(); ++i) {
    if (static_cast<std::size_t>(kDtypes[i].dtype) != i) return false;
  }
  return true;
}
static_assert(rows_follow_the_enum(), "the table is indexed by the enumerator");

const DtypeRow& row_of(Dtype dtype) {
  return kDtypes.at(static_cast<std::size_t>(dtype));
}

/// a * b, or nothing if it does not fit.
std::optional<std::uint64_t> checked_product(std::uint64_t a, std::uint64_t b) {
  if (b != 0 && a > std::numeric_limits<std::uint64_t>::max() / b) return std::nullopt;
  return a * b;
}

}  // namespace

std::string_view dtype_name(Dtype dtype) {
  return row_of(dtype).name;
}

unsigned dtype_bits(Dtype dtype) {
  return row_of(dtype).bits;
}

std::optional<Dtype> dtype_from_name(std::string_view name) {
  for (const DtypeRow& row : kDtypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

std::string all_dtype_names() {
  std::string names;
  for (const DtypeRow& row : kDtypes) {
    if (!names.empty()) names += ", ";
    names += row.name;
  }
  return names;
}

TensorSize tensor_size(Dtype dtype, std::span<const std::uint64_t> shape) {
  constexpr const char* kTooLarge = "has a size in bits that does not fit in 64 bits";
  std::uint64_t elements = 1;
  bool is_empty = false;
  for (const std::uint64_t extent : shape) {
    // A 0 must not hide an overflow of the other dimensions, whatever their order.
    if (extent == 0) {
      is_empty = true;
      continue;
    }
    const auto product = checked_product(elements, extent);
    if (!product) return {0, 0, kTooLarge};
    elements = *product;
  }
  const auto bits = checked_product(elements, dtype_bits(dtype));
  if (!bits) return {0, 0, kTooLarge};
  if (is_empty) return {0, 0, nullptr};
  if (*bits % 8 != 0) return {elements, 0, "does not fill a whole number of bytes"};
  return {elements, *bits / 8, nullptr};
}

std::string shape_text(std::span<const std::uint64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace moetail::io
