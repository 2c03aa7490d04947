// SPDX-License-Identifier: Apache-2.0
// The element types of the safetensors format, and the size in bytes of a tensor of a given type and shape.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace moetail::io {

/// Element types, named as in the format (a header says "BF16" where this says bf16). The f4 and f6 types are
/// packed: their elements are smaller than a byte.
enum class Dtype : std::uint8_t {
  boolean,
  f4,
  f6_e2m3,
  f6_e3m2,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64,
};

/// The type's name in a header, for example "BF16".
std::string_view dtype_name(Dtype dtype);

/// Bits of one element: 4 to 64.
unsigned dtype_bits(Dtype dtype);

/// The type with that name in a header (case matters), or nothing.
std::optional<Dtype> dtype_from_name(std::string_view name);

/// All names, "BOOL, F4, ...", for error messages.
std::string all_dtype_names();

/// Size of a tensor, or why it has none.
struct TensorSize {
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;
  const char* problem =
      nullptr;  ///< null where the size is right; else what is wrong, as the end of a sentence
};

/// Number of elements (1 for the empty shape, 0 if a dimension is 0) and bytes. A problem is reported if the
/// product of the dimensions other than 0 times the bits of an element does not fit in 64 bits, or is no
/// whole number of bytes.
TensorSize tensor_size(Dtype dtype, std::span<const std::uint64_t> shape);

/// "[2, 3]", for error messages.
std::string shape_text(std::span<const std::uint64_t> shape);

}  // namespace moetail::io
