// SPDX-License-Identifier: Apache-2.0
// A group of the CUDA engine over the fake device, with kernels that are empty: what its tests share.
#pragma once

#include <mutex>

#include "engine/cuda/box_group.hpp"
#include "tests/cuda_testing.hpp"

namespace moetail::testing {

using cuda::abi::LaunchAttributeId;
using engine::RankTail;
using engine::StreamRole;
using engine::TailCall;

class CudaGroup : public FakeCudaTest {
 protected:
  ~CudaGroup() override { expect_nothing_lives(); }

  /// A group of `ranks` ranks with boxes and streams; its kernels are empty.
  struct Ranks {
    Ranks(const cuda::ContextRef& context, int ranks, int replay_rank = -1,
          cuda::abi::Stream main_stream = nullptr, bool replays_unicast = false) {
      cuda::GroupOptions options;
      options.replays_unicast = replays_unicast;
      options.main_stream = main_stream;
      options.ranks = ranks;
      options.replay_rank = replay_rank;
      options.deadline = std::chrono::seconds(3);
      options.first_deadline = std::chrono::seconds(5);
      options.context = context;
      options.cache =
          std::make_shared<cuda::KernelCache>(cuda::Compiler{[] { return std::string("1.0"); },
                                                             [this](const cuda::KernelSpec& spec) {
                                                               const std::lock_guard lock(compiling);
                                                               compiled.push_back(spec);
                                                               cuda::CompileResult result;
                                                               result.cubin.resize(4);
                                                               cuda::KernelUsage usage;
                                                               usage.name = spec.entry;
                                                               usage.num_registers = 32;
                                                               result.usage = {usage};
                                                               return result;
                                                             }},
                                              std::nullopt);
      group = std::make_unique<cuda::Group>(options);
      for (int rank = 0; rank < (replay_rank < 0 ? ranks : 1); ++rank) {
        main.push_back(group->make_stream(rank, StreamRole::main));
        side.push_back(group->make_stream(rank, StreamRole::side));
      }
      protocol::Shape shape;
      shape.ranks = ranks;
      boxes = group->make_boxes(shape);
    }

    std::vector<RankTail> tails(const TailCall& call) {
      std::vector<RankTail> result;
      for (std::size_t rank = 0; rank < boxes.size(); ++rank)
        result.push_back({boxes[rank].get(), main[rank].get(), call});
      return result;
    }

    std::mutex compiling;
    std::vector<cuda::KernelSpec> compiled;
    std::unique_ptr<cuda::Group> group;
    std::vector<std::unique_ptr<engine::Stream>> main, side;
    std::vector<std::unique_ptr<engine::Box>> boxes;
  };

  static TailCall front_call() {
    TailCall call;
    call.mode = Mode::front;
    call.batch = 3;
    call.routed.form = Form::expanded;
    return call;
  }
  static bool has(const FakeLaunch& launch, LaunchAttributeId id) {
    for (const auto& attribute : launch.attributes)
      if (attribute.id == id) return true;
    return false;
  }
};

}  // namespace moetail::testing
