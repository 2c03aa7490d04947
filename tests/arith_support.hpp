// SPDX-License-Identifier: Apache-2.0
// For the arithmetic's tests: arrays between guard pages, values that include every special one, comparison of bits.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/cpu/arith.hpp"
#include "protocol/numerics.hpp"

namespace moetail::cpu::test {

/// An array whose last byte (or first one) touches a page that faults on any access; so does the page on its far side.
template <typename T>
class GuardedArray {
 public:
  enum class Touch { end, begin };

  explicit GuardedArray(std::size_t count, Touch touch = Touch::end) : count_(count) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t bytes = count * sizeof(T);
    const std::size_t inside = std::max<std::size_t>(1, (bytes + page - 1) / page) * page;
    bytes_ = inside + 2 * page;
    base_ = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED) throw std::runtime_error("no memory for a guarded array");
    char* first = static_cast<char*>(base_) + page;
    if (mprotect(first, inside, PROT_READ | PROT_WRITE) != 0) throw std::runtime_error("mprotect failed");
    data_ = reinterpret_cast<T*>(touch == Touch::end ? first + (inside - bytes) : first);
  }
  GuardedArray(const std::vector<T>& values, Touch touch) : GuardedArray(values.size(), touch) {
    std::copy(values.begin(), values.end(), data_);
  }
  GuardedArray(GuardedArray&& other) noexcept
      : base_(other.base_), bytes_(other.bytes_), data_(other.data_), count_(other.count_) {
    other.base_ = nullptr;
  }
  GuardedArray& operator=(GuardedArray&&) = delete;
  ~GuardedArray() {
    if (base_ != nullptr) munmap(base_, bytes_);
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  std::size_t size() const { return count_; }

 private:
  void* base_ = nullptr;
  std::size_t bytes_ = 0;
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

using Touch = GuardedArray<Bf16>::Touch;

/// hash(seed, index), the finalizer of splitmix64.
inline std::uint64_t hash(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t z = seed * 0x9E3779B97F4A7C15u + (index + 1) * 0xD1B54A32D192ED03u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/// A value of magnitude 2^-7 to 2^2 with either sign, all bf16 mantissas.
inline Bf16 plain_bf16(std::uint64_t seed, std::uint64_t index) {
  const std::uint64_t bits = hash(seed, index);
  const auto exponent = static_cast<std::uint32_t>(120 + bits % 10);
  return static_cast<Bf16>(((bits >> 20) & 0x807Fu) | (exponent << 7));
}

/// One in eight is special: zeros, subnormals, infinities, NaNs of several payloads (half a sentinel among them), the
/// largest finite value.
inline Bf16 any_bf16(std::uint64_t seed, std::uint64_t index) {
  constexpr Bf16 kSpecial[] = {0x0000, 0x8000, 0x0001, 0x8003, 0x007F, 0x0080, 0x7F80, 0xFF80,
                               0x7FC0, 0xFFC1, 0x7F81, 0xFFFF, 0x7FFF, 0x7F7F, 0xFF7F, 0x3F80};
  const std::uint64_t choice = hash(seed ^ 0x5bd1e995u, index);
  return choice % 8 == 0 ? kSpecial[(choice >> 8) % std::size(kSpecial)] : plain_bf16(seed, index);
}

/// The same in fp32, the low half of the word filled too.
inline float any_f32(std::uint64_t seed, std::uint64_t index) {
  const std::uint32_t high = any_bf16(seed, index);
  const auto low = static_cast<std::uint32_t>(hash(seed ^ 77u, index) & 0xFFFFu);
  return protocol::float_from_bits((high << 16) | low);
}

template <typename Value>
auto make_values(std::size_t count, std::uint64_t seed, Value value) {
  std::vector<decltype(value(seed, 0))> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = value(seed, i);
  return values;
}

inline std::uint32_t bits_of(Bf16 value) {
  return value;
}
/// Of an fp32 NaN only that it is one: the hardware chooses its payload and sign.
inline std::uint32_t bits_of(float value) {
  return std::isnan(value) ? 0x7FC00000u : protocol::bits_from_float(value);
}

/// The first index where `got` and `want` differ, or `count`.
template <typename Got, typename Want>
std::size_t first_difference(const Got& got, const Want& want, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (bits_of(got[i]) != bits_of(want[i])) return i;
  }
  return count;
}

template <typename Got, typename Want>
testing::AssertionResult same_bits(const Got& got, const Want& want, std::size_t count) {
  const std::size_t i = first_difference(got, want, count);
  if (i == count) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "index " << i << " of " << count << ": got 0x" << std::hex
                                     << bits_of(got[i]) << ", want 0x" << bits_of(want[i]);
}

/// A suite that runs once a dispatch target that this machine can run.
class ArithTest : public testing::TestWithParam<const Arith*> {
 protected:
  const Arith& arith() const { return *GetParam(); }
  bool is(const char* name) const { return std::string(arith().name) == name; }
};

inline std::string target_name(const testing::TestParamInfo<const Arith*>& info) {
  return info.param->name;
}

}  // namespace moetail::cpu::test
