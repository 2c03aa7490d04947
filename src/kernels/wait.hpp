// SPDX-License-Identifier: Apache-2.0
// The waiting half of the protocol's memory policy on a GPU: one thread's waits, their deadline, and the fault they end in.
#pragma once

#include "device/fault.hpp"
#include "device/shared.hpp"
#include "kernels/ablation.hpp"
#include "kernels/view.hpp"
#include "protocol/wait.hpp"

namespace moetail::kernels {

using device::kRecorded;
using protocol::FaultKind;
using protocol::Site;
using protocol::Spot;
using protocol::WaitVerdict;

/// Writes the record unless this box has one, poisons the own box and tells every peer who is to blame.
MOETAIL_COLD void raise_fault(const RankArgs& args, u64 epoch, FaultKind kind, Spot spot, u64 elapsed_ns);

/// device/fault.hpp's Rank, which is RankArgs here.
struct ArgsRank {
  const RankArgs& args;
  u64 served_epoch;

  MOETAIL_DEVICE i32 rank() const { return args.rank; }
  MOETAIL_DEVICE constexpr i32 ranks() const { return kRanks; }
  MOETAIL_DEVICE i32 layer() const { return args.call.layer; }
  MOETAIL_DEVICE u64 epoch() const { return served_epoch; }
  MOETAIL_DEVICE FaultCell* fault_cell() const { return args.fault; }
  MOETAIL_DEVICE u64* poison_of(i32 rank) const {
    return View{args}.at<u64>(rank, kControlOffset<Control::poison>);
  }
  MOETAIL_DEVICE u64 deadline_ns(bool is_first_call) const {
    return is_first_call ? args.first_deadline_ns : args.deadline_ns;
  }
  MOETAIL_DEVICE void raise_fault(FaultKind kind, const Spot& spot, u64 elapsed_ns) const {
    kernels::raise_fault(args, served_epoch, kind, spot, elapsed_ns);
  }
};

MOETAIL_COLD void raise_fault(const RankArgs& args, u64 epoch, FaultKind kind, Spot spot, u64 elapsed_ns) {
  each_time<Stage::faults>([&] { device::raise_fault_of(ArgsRank{args, epoch}, kind, spot, elapsed_ns); });
}

/// One look around of a wait that has lasted `elapsed_ns`.
MOETAIL_COLD WaitVerdict look_around(const RankArgs& args, u64 epoch, Spot spot, u64 elapsed_ns) {
  return device::look_around_of(ArgsRank{args, epoch}, spot, elapsed_ns);
}

/// device/fault.hpp's Rank of a wait. `epoch_at`: shared address of the epoch, which only a look around and a fault want to know.
struct WaitingRank {
  const RankArgs& args;
  u32 epoch_at;

  MOETAIL_DEVICE WaitVerdict look_around(const Spot& spot, u64 elapsed_ns) const {
    return kernels::look_around(args, device::load_shared_pair(epoch_at), spot, elapsed_ns);
  }
  MOETAIL_DEVICE void raise_fault(FaultKind kind, const Spot& spot, u64 elapsed_ns) const {
    kernels::raise_fault(args, device::load_shared_pair(epoch_at), kind, spot, elapsed_ns);
  }
};

/// The policy, one object a wait.
#if MOETAIL_LEFT_OUT == 0
using Waiter = device::WaiterOf<WaitingRank>;
#else
struct Waiter : device::WaiterOf<WaitingRank> {
  using Base = device::WaiterOf<WaitingRank>;
  MOETAIL_DEVICE explicit Waiter(const WaitingRank& me) : Base(me) {}
  MOETAIL_DEVICE WaitVerdict pause(u32 spins, u32 ticket, int missing, const Spot& spot) {
    if constexpr (kTimes<Stage::deadlines> == 0) return WaitVerdict::go_on;
    return Base::pause(spins, ticket, missing, spot);
  }
};
#endif

}  // namespace moetail::kernels
