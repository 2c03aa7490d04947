// SPDX-License-Identifier: Apache-2.0
// A file descriptor that a scope owns.
#pragma once

#include <unistd.h>

namespace moetail::base {

/// Closes the descriptor at the end of its scope; what was mapped from it stays. Negative, as open(2) returns it after an error, is none.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace moetail::base
