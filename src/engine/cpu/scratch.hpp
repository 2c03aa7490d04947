// SPDX-License-Identifier: Apache-2.0
// Memory that a cluster's thread keeps between launches: grows to the largest launch it has seen and is never
// zeroed.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace moetail::cpu {

/// An array of plain numbers on a 64-byte boundary whose content is undefined after it grew.
template <class T>
class Scratch {
 public:
  T* get(std::size_t count) {
    if (count > capacity_) {
      data_.reset(static_cast<T*>(::operator new(count * sizeof(T), kAlignment)));
      capacity_ = count;
    }
    return data_.get();
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(T* data) const { ::operator delete(data, kAlignment); }
  };
  std::unique_ptr<T, Free> data_;
  std::size_t capacity_ = 0;
};

}  // namespace moetail::cpu
