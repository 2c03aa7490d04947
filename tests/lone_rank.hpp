// SPDX-License-Identifier: Apache-2.0
// One rank's calls by themselves, as a process of its own would make them: no other rank's part is looked at, so that ranks can disagree.
#pragma once

#include <chrono>
#include <string>

#include "tests/harness.hpp"

namespace moetail::testing {

/// Enqueues rank `rank`'s part of a call. A batch of 0 is a call without rows.
inline OutView enqueue_rank(Harness& harness, int rank, int batch, const verify::CallInputs& inputs,
                            const CallOptions& options) {
  RankCall call;
  if (batch > 0) {
    call = harness.prepare_rank(rank, batch, inputs, options);
  } else {
    call.tail = &harness.tail(rank, options.layer);
    call.call.mode = options.mode;
  }
  runtime::RankRun run{"run", call.tail->impl(), call.call};
  runtime::check_run(run);
  return runtime::enqueue_runs({&run, 1}).front();
}

/// Takes the rows to memory that goes when they are there.
inline void take_alone(Harness& harness, int rank, const OutView& view) {
  const auto rows = std::make_shared<std::vector<Bf16>>(static_cast<std::size_t>(view.batch) *
                                                        static_cast<std::size_t>(view.hidden));
  harness.boxes()[static_cast<std::size_t>(rank)].take(view, *rows);
  harness.world().main_stream(rank).launch([rows] {});
}

/// A test that wants its faults soon wants none of them in calls that are right, however busy the machine is: they have this deadline.
inline constexpr std::chrono::seconds kNoHurry{60};

/// The deadline of every rank from the next call on. Only while nothing runs.
inline void set_deadline(Harness& harness, std::chrono::nanoseconds deadline) {
  for (int rank = 0; rank < harness.shape().ranks; ++rank)
    harness.state(rank).deadline = harness.state(rank).first_deadline = deadline;
}

/// The fault with which World::synchronize ends, or "".
inline std::string fault_of(const World& world) {
  try {
    world.synchronize();
  } catch (const Error& error) {
    return error.code() == Code::fault ? error.what() : fmt::format("no fault but: {}", error.what());
  }
  return "";
}

}  // namespace moetail::testing
