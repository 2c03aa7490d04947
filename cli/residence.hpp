// SPDX-License-Identifier: Apache-2.0
// Host arrays where a world's launches can address them: the arrays themselves on the CPU, copies in device memory on a GPU.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "moetail/moetail.hpp"

namespace moetail::cli {

class Residence {
 public:
  explicit Residence(const World& world) : world_(world), is_host_(world.engine() == Engine::cpu) {}

  /// `host` for `rank`'s launches. An array is copied when it is first asked for, and must not change after that; later calls find the
  /// copy by its address, whatever the rank: the ranks of this process share one device.
  template <typename T>
  std::span<const T> of(std::span<const T> host, int rank) {
    if (is_host_ || host.empty()) return host;
    return {static_cast<const T*>(copy_of(host.data(), host.size_bytes(), rank)), host.size()};
  }
  template <typename T>
  std::span<const T> of(std::span<T> host, int rank) {
    return of(std::span<const T>(host), rank);
  }

  /// All spans of a routed input.
  Routed of(const Routed& routed, int rank);

  /// Where `rank` writes what becomes `host` at `fetch`.
  std::span<Bf16> output(std::span<Bf16> host, int rank);
  /// Brings every output to its host array. Only between steps.
  void fetch();

 private:
  const void* copy_of(const void* host, std::size_t bytes, int rank);

  struct Copy {
    RankBuffer buffer;
    std::size_t bytes = 0;
  };
  struct Output {
    RankBuffer buffer;
    std::span<Bf16> host;
    int rank = 0;
  };

  World world_;
  bool is_host_;
  std::map<const void*, Copy> copies_;  // by the host array's address
  std::map<const void*, Output> outputs_;
};

}  // namespace moetail::cli
