// SPDX-License-Identifier: Apache-2.0
// The kernels of one family of boxes: found for a call once, by its numbers, and launched with by-value arguments after that.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <tuple>

#include "engine/call.hpp"
#include "engine/cuda/kernel_store.hpp"
#include "kernels/args.hpp"
#include "kernels/plan.hpp"
#include "protocol/shape.hpp"

namespace moetail::cuda {

class BoxKernels {
 public:
  /// `ranks`: that run on this device. `put`: how what every rank gets whole leaves. `traces`: tails leave TraceSlots.
  BoxKernels(std::shared_ptr<KernelStore> store, kernels::DeviceShape device, const protocol::Shape& shape,
             int ranks, kernels::PutBy put, bool traces);

  struct Ready {
    std::shared_ptr<const Kernel> kernel;
    Launch launch;
  };
  /// The kernel that serves `whole_call` as `kind`, for `launch_ranks` ranks. The first time it is planned, compiled if need be, loaded and
  /// checked; while `stream` is capturing that is Code::call_order.
  const Ready& get(kernels::Kind kind, const engine::TailCall& whole_call, int launch_ranks,
                   const Stream& stream);

  struct Wanted {
    kernels::Kind kind;
    int launch_ranks;
  };
  /// Makes several kernels of one call ready, those that are missing side by side.
  void get_all(std::span<const Wanted> wanted, const engine::TailCall& whole_call, const Stream& stream);

  /// The kernel that publishes finalized rows of any shape; a launch chooses its grid.
  const Ready& publish_rows(const Stream& stream);

  /// Launches with one argument for each rank.
  static void launch(const Ready& ready, const Stream& stream, int batch,
                     std::span<const kernels::RankArgs> ranks);

  const protocol::Shape& shape() const { return shape_; }

 private:
  using Key =
      std::tuple<kernels::Kind, int, Mode, Form, WeightType, bool, bool, bool, bool, bool, KernelChoice, int>;

  static Key key_of(kernels::Kind kind, const engine::TailCall& call, int launch_ranks);
  engine::TailCall part_of(kernels::Kind kind, const engine::TailCall& whole_call) const;
  KernelRequest request_for(kernels::Kind kind, const engine::TailCall& call, int launch_ranks) const;

  std::shared_ptr<KernelStore> store_;
  kernels::DeviceShape device_;
  protocol::Shape shape_;
  int ranks_;
  kernels::PutBy put_;
  bool traces_;
  std::mutex mutex_;
  std::map<Key, Ready> ready_;  // never erased from: callers keep references
  std::optional<Ready> publish_rows_;
};

/// The tail that serves a call.
kernels::Kind tail_kind(const engine::TailCall& call);

}  // namespace moetail::cuda
