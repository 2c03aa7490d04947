// SPDX-License-Identifier: Apache-2.0
#include "runtime/call_tracker.hpp"

#include "base/error.hpp"
#include "protocol/order.hpp"

namespace moetail::runtime {

CallTracker::Use::Use(CallTracker& tracker, int rank) : tracker_(tracker) {
  if (tracker_.in_use_.test_and_set(std::memory_order_acquire))
    base::fail(Code::busy, "box of rank {}: used by two threads at once: accepted is one thread at a time",
               rank);
}

Mode CallTracker::check_open(const char* what, const void* tail, int batch, Mode requested,
                             Mode resolved) const {
  if (!open_) {
    if (unconsumed_ && protocol::kLaunchOrder.tail_after_consumer)
      base::fail(Code::call_order,
                 "{}: the output of call {} is not consumed: accepted is a take (or a consumer) of it before "
                 "the next call",
                 what, calls_);
    return resolved;
  }
  if (tail != tail_)
    base::fail(Code::call_order, "{}: another layer's call is open on this box: accepted is its run first",
               what);
  if (batch != batch_)
    base::fail(Code::call_order, "{}: batch = {}: accepted is {}, as this call began", what, batch, batch_);
  if (requested != Mode::automatic && resolved != mode_)
    base::fail(Code::call_order, "{}: mode = {}: accepted is {}, as this call began", what,
               protocol::mode_name(resolved), protocol::mode_name(mode_));
  return mode_;
}

Mode CallTracker::open(const char* what, const void* tail, int batch, Mode requested, Mode resolved) {
  mode_ = check_open(what, tail, batch, requested, resolved);
  if (open_) return mode_;
  open_ = true;
  pushed_ = false;
  shared_ = nullptr;
  tail_ = tail;
  batch_ = batch;
  return mode_;
}

std::uint64_t CallTracker::close() {
  open_ = false;
  unconsumed_ = true;
  return ++calls_;
}

void CallTracker::consume(const char* what, std::uint64_t call) {
  if (protocol::kLaunchOrder.tail_after_consumer && (call != calls_ || !unconsumed_))
    base::fail(Code::call_order, "{}: view of call {}: accepted is the latest call's ({}), once{}", what,
               call, calls_, call == calls_ ? "; it is consumed already" : "");
  unconsumed_ = false;
}

void CallTracker::reset() {
  open_ = false;
  pushed_ = false;
  unconsumed_ = false;
}

}  // namespace moetail::runtime
