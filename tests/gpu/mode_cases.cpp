// SPDX-License-Identifier: Apache-2.0
// Every mode: against the oracle, against front's bits where the contract is the same, and one after the other on one box.
#include "tests/gpu/rig.hpp"

namespace moetail::gpu {
namespace {

Shape k3(int ranks) {
  Shape shape;
  shape.ranks = ranks;
  return shape;
}

std::string name_of(const Call& call) {
  return fmt::format("{}{}{} B = {}", protocol::mode_name(call.mode), call.shares_reduced ? " sharing" : "",
                     call.one_launch ? " in one launch"
                     : call.pushes   ? ""
                                     : " own push",
                     call.batch);
}

std::vector<u16> check(Rig& rig, const Call& call) {
  try {
    return rig.check(call);
  } catch (const std::exception& error) {
    throw Failure(fmt::format("{}: {}", name_of(call), error.what()));
  }
}

std::vector<Call> calls_of(int batch) {
  std::vector<Call> calls;
  Call call;
  call.batch = batch;
  call.seed = static_cast<u64>(batch);
  calls.push_back(call);
  call.shares_reduced = true;
  calls.push_back(call);
  call.mode = Mode::publish;
  calls.push_back(call);
  call.shares_reduced = false;
  call.pushes = false;
  calls.push_back(call);
  call.mode = Mode::front_poll;
  if (batch <= 16) calls.push_back(call);
  return calls;
}

/// The publishing kernel pushes, push is a launch of its own, or the tail does all of it: the same bits.
std::vector<Call> twoshot_calls(int batch) {
  std::vector<Call> calls(3);
  for (auto& call : calls) {
    call.batch = batch;
    call.mode = Mode::twoshot;
  }
  calls[1].pushes = false;
  calls[2].one_launch = true;
  return calls;
}

/// All ways of a batch give the same bits: front, with and without sharing, publish likewise, and front_poll; or those of two-shot.
void same_bits(const Gpu& gpu, std::vector<Call> (*ways_of)(int batch), int ranks,
               std::initializer_list<int> batches) {
  Rig rig(gpu, k3(ranks), World::loopback);
  std::vector<Call> all;
  for (const int batch : batches)
    for (const auto& call : ways_of(batch)) all.push_back(call);
  rig.warm_up(all);
  for (const int batch : batches) {
    const auto ways = ways_of(batch);
    const auto first = check(rig, ways.front());
    for (std::size_t i = 1; i < ways.size(); ++i)
      require(check(rig, ways[i]) == first, "{} has other bits than {}", name_of(ways[i]),
              name_of(ways.front()));
  }
}

/// Modes and batches in turns on one box: each call re-arms what the one before it dirtied.
void mixed(const Gpu& gpu) {
  Rig rig(gpu, k3(4), World::loopback);
  std::vector<Call> calls;
  for (const int batch : {16, 3, 40, 1}) {
    for (const auto& call : calls_of(batch)) calls.push_back(call);
    calls.push_back(twoshot_calls(batch)[0]);
    calls.push_back(twoshot_calls(batch)[2]);
  }
  rig.warm_up(calls);
  for (std::size_t i = 0; i < 2 * calls.size(); ++i) check(rig, calls[i * 7 % calls.size()]);
}

void forms(const Gpu& gpu) {
  Rig rig(gpu, k3(2), World::loopback);
  std::vector<Call> calls;
  for (const Mode mode : {Mode::publish, Mode::twoshot, Mode::front_poll})
    for (const Form form : {Form::permuted, Form::partial})
      for (const WeightType weights : {WeightType::bf16, WeightType::fp32}) {
        if (form == Form::partial && (mode == Mode::front_poll || weights == WeightType::fp32)) continue;
        Call call;
        call.batch = 6;
        call.mode = mode;
        call.form = form;
        call.weights = weights;
        call.residual = form == Form::permuted;
        calls.push_back(call);
        call.one_launch = true;
        if (mode == Mode::twoshot) calls.push_back(call);
      }
  rig.warm_up(calls);
  for (const auto& call : calls) check(rig, call);
}

void replay(const Gpu& gpu) {
  for (const Mode mode : {Mode::publish, Mode::twoshot, Mode::front_poll})
    for (const int batch : {1, 16, 64}) {
      if (mode == Mode::front_poll && batch > 16) continue;
      // Publish: with shared sums; two-shot: in one launch.
      for (const bool otherwise : {false, true}) {
        if (otherwise && mode == Mode::front_poll) continue;
        Rig rig(gpu, k3(8), World::replay, 1, 3);
        Call call;
        call.batch = batch;
        call.mode = mode;
        call.shares_reduced = otherwise && mode == Mode::publish;
        call.one_launch = otherwise && mode == Mode::twoshot;
        call.put = kernels::PutBy::own;
        rig.warm_up({call});
        const auto inputs = rig.upload(call);
        rig.fill_peers(call, inputs);
        for (int i = 0; i < 4; ++i) {
          try {
            rig.check(call, inputs);
          } catch (const std::exception& error) {
            throw Failure(fmt::format("{} call {}: {}", name_of(call), i, error.what()));
          }
        }
      }
    }
}

}  // namespace

std::vector<Case> mode_cases() {
  return {{"modes.same_bits.t8",
           [](const Gpu& gpu) {
             same_bits(gpu, calls_of, 8, {1, 4, 16, 33, 128});
           }},
          {"modes.same_bits.t2",
           [](const Gpu& gpu) {
             same_bits(gpu, calls_of, 2, {2, 12});
           }},
          {"modes.same_bits.t16",
           [](const Gpu& gpu) {
             same_bits(gpu, calls_of, 16, {1, 16});
           }},
          {"modes.twoshot.t8",
           [](const Gpu& gpu) {
             same_bits(gpu, twoshot_calls, 8, {1, 5, 64});
           }},
          {"modes.twoshot.t16",
           [](const Gpu& gpu) {
             same_bits(gpu, twoshot_calls, 16, {2, 32});
           }},
          {"modes.twoshot.t1", [](const Gpu& gpu) { same_bits(gpu, twoshot_calls, 1, {3}); }},
          {"modes.mixed", mixed},
          {"modes.forms", forms},
          {"modes.replay", replay}};
}

}  // namespace moetail::gpu
