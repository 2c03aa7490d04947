// SPDX-License-Identifier: Apache-2.0
// What a world does together with ranks that are other processes: joining, making boxes, recovering. docs/processes.md.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/cpu/group.hpp"
#include "transport/rendezvous.hpp"

namespace moetail::runtime {

/// What all ranks must have alike, as (name, value).
using Fingerprint = std::vector<std::pair<std::string, std::string>>;

/// One rank's seat among the processes of its world. Every member is collective, and what it throws is thrown on all ranks.
class ProcessRanks {
 public:
  /// Takes the seat, without waiting.
  ProcessRanks(const std::string& token, int rank, int ranks, std::chrono::milliseconds deadline);

  /// Passes once every rank's `make` has returned, and all have one fingerprint, which `make` returns. Throws Code::invalid_argument with
  /// the field, two ranks and their values where they differ.
  void join(const std::function<Fingerprint()>& make);
  /// This rank's box, armed, of a family that counts from 1 on. `check`: what this rank may refuse of the shape.
  std::vector<std::unique_ptr<engine::Box>> make_boxes(cpu::Group& group, int family,
                                                       const protocol::Shape& shape,
                                                       const std::function<void()>& check);
  /// `come_to_rest` on all ranks, then `arm` on all ranks, before any of them goes on.
  void recover(int family, const std::function<void()>& come_to_rest, const std::function<void()>& arm);

 private:
  void agree(const std::string& step, const std::function<Fingerprint()>& make);
  /// Throws Code::busy where another thread of this process is at a collective step. `what`: the step.
  std::unique_lock<std::mutex> begin(const char* what);

  transport::Rendezvous meeting_;
  std::mutex in_use_;
};

}  // namespace moetail::runtime
