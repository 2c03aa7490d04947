// SPDX-License-Identifier: Apache-2.0
// Stalls at every site of one rank, all of its blocks or one: the same bits, no fault. In loopback, and with ranks on streams of
// their own, where the others get ahead of the stalled one as far as the protocol lets them.
#include "tests/gpu/rig.hpp"

namespace moetail::gpu {
namespace {

std::vector<Call> variants() {
  std::vector<Call> calls(6);
  calls[1].shares_reduced = true;
  calls[2].mode = Mode::publish;
  calls[2].pushes = false;
  calls[3].mode = Mode::twoshot;
  calls[4].mode = Mode::front_poll;
  calls[5].mode = Mode::twoshot;
  calls[5].one_launch = true;
  for (auto& call : calls) call.batch = 3;
  return calls;
}

void stalls(const Gpu& gpu, World world, int ranks) {
  const auto calls = variants();
  Rig rig(gpu, small_shape(ranks), world);
  rig.defines = {"MOETAIL_STALL_NS=200000"};
  rig.warm_up(calls);
  constexpr std::size_t kInputs = 2, kInRow = 4;
  int tried = 0;
  for (auto call : calls) {
    std::vector<DeviceInputs> inputs;
    std::vector<std::vector<u16>> expected;
    std::vector<std::vector<cuda::DeviceMemory>> rows;
    rig.stall = {};
    for (std::size_t i = 0; i < kInputs; ++i) {
      call.seed = 20 + i;
      inputs.push_back(rig.upload(call));
      expected.push_back(rig.check(call, inputs.back()));
    }
    for (std::size_t i = 0; i < kInRow; ++i) rows.push_back(rig.make_destinations(call.batch));
    for (int site = 1; site < protocol::kSites; ++site)
      for (const int block : {-1, 0, 5}) {
        rig.stall = {1, static_cast<protocol::Site>(site), block};
        for (std::size_t i = 0; i < kInRow; ++i) {
          rig.enqueue(call, inputs[i % kInputs]);
          rig.consume(call, inputs[i % kInputs], rows[i]);
        }
        rig.synchronize();
        tried += static_cast<int>(kInRow);
        const std::string where =
            fmt::format("{}{}, stalled at {}, block {}", protocol::mode_name(call.mode),
                        call.shares_reduced ? " sharing" : "", site_name(rig.stall.site), block);
        try {
          rig.require_no_fault();
          for (std::size_t i = 0; i < kInRow; ++i)
            require(rig.equal_rows(rows[i], call.batch) == expected[i % kInputs], "call {}: other bits", i);
        } catch (const Failure& failure) {
          throw Failure(fmt::format("{}: {}", where, failure.what()));
        }
      }
  }
  fmt::print("  tried {}: calls with a stalled rank\n", tried);
}

}  // namespace

std::vector<Case> stall_cases() {
  return {{"stalls.loopback.t4", [](const Gpu& gpu) { stalls(gpu, World::loopback, 4); }},
          {"stalls.streams.t2", [](const Gpu& gpu) { stalls(gpu, World::streams, 2); }}};
}

}  // namespace moetail::gpu
