// SPDX-License-Identifier: Apache-2.0
// Arrays for weights, inputs and outputs: aligned, and on huge pages where they are large.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <type_traits>

namespace moetail::cli {

/// `size` elements whose values are not set. A stream of weights over 4 KiB pages spends its time in page walks, so large
/// arrays ask the kernel for 2 MiB ones.
template <typename T>
class Buffer {
  static_assert(std::is_trivial_v<T>);

 public:
  Buffer() = default;
  explicit Buffer(std::size_t size) : size_(size) {
    if (size == 0) return;
    const std::size_t bytes = size * sizeof(T);
    const std::size_t alignment = bytes >= 2 * kHugePage ? kHugePage : kCacheLine;
    void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (memory == nullptr) throw std::bad_alloc();
    if (alignment == kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: nothing is wrong without it
    data_.reset(static_cast<T*>(memory));
  }

  T* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  std::span<T> span() const { return {data_.get(), size_}; }
  std::span<T> span(std::size_t begin, std::size_t count) const { return span().subspan(begin, count); }

 private:
  static constexpr std::size_t kCacheLine = 64, kHugePage = std::size_t{2} << 20;
  struct Free {
    void operator()(T* memory) const { std::free(memory); }
  };

  std::unique_ptr<T, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace moetail::cli
