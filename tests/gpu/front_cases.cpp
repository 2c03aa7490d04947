// SPDX-License-Identifier: Apache-2.0
// front: every rank count, batch and form, in loopback and replay.
#include "tests/gpu/rig.hpp"

namespace moetail::gpu {
namespace {

Shape k3(int ranks, int capacity = 128) {
  Shape shape;
  shape.ranks = ranks;
  shape.capacity = capacity;
  return shape;
}

std::vector<Call> calls_of(std::initializer_list<int> batches, kernels::PutBy put) {
  std::vector<Call> calls;
  for (const int batch : batches) {
    Call call;
    call.batch = batch;
    call.put = put;
    calls.push_back(call);
  }
  return calls;
}

void loopback(const Gpu& gpu, int ranks, std::initializer_list<int> batches) {
  Rig rig(gpu, k3(ranks), World::loopback);
  rig.warm_up(calls_of(batches, kernels::PutBy::peers));
  for (const int batch : batches) {
    Call call;
    call.batch = batch;
    call.seed = static_cast<u64>(batch);
    try {
      rig.check(call);
    } catch (const Failure& failure) {
      throw Failure(fmt::format("B = {}: {}", batch, failure.what()));
    }
  }
}

void replay(const Gpu& gpu, const Shape& shape, int rank, std::initializer_list<int> batches) {
  Rig rig(gpu, shape, World::replay, 1, rank);
  rig.warm_up(calls_of(batches, kernels::PutBy::own));
  for (const int batch : batches) {
    Call call;
    call.batch = batch;
    call.put = kernels::PutBy::own;
    rig.arm_all();
    const auto inputs = rig.upload(call);
    rig.fill_peers(call, inputs);
    std::vector<u16> first;
    // Five calls: every slot, and one that was re-armed.
    for (int i = 0; i < 5; ++i) {
      const auto rows = rig.check(call, inputs);
      if (i == 0) first = rows;
      require(first == rows, "B = {}: call {} has other bits than the first", batch, i);
    }
  }
}

void forms(const Gpu& gpu) {
  Rig rig(gpu, k3(4), World::loopback);
  std::vector<Call> calls;
  for (const Form form : {Form::expanded, Form::permuted, Form::partial})
    for (const WeightType weights : {WeightType::bf16, WeightType::fp32})
      for (const bool residual : {false, true}) {
        if (form == Form::partial && weights == WeightType::fp32) continue;
        Call call;
        call.batch = 5;
        call.form = form;
        call.weights = weights;
        call.residual = residual;
        calls.push_back(call);
      }
  rig.warm_up(calls);
  for (const auto& call : calls) rig.check(call);
}

void odd_shapes(const Gpu& gpu) {
  const Shape shapes[] = {{64, 8, 1, 1, 4, 2},
                          {80, 24, 2, 3, 9, 2},
                          {1056, 136, 4, 6, 40, 4},
                          {2112, 1000, 8, 64, 20, 4},
                          {512, 520, 16, 7, 17, 1}};
  for (const auto& shape : shapes) {
    Rig rig(gpu, shape, World::loopback);
    std::vector<Call> calls;
    for (const int batch : {1, 3, shape.capacity})
      for (const Form form : {Form::expanded, Form::permuted}) {
        Call call;
        call.batch = batch;
        call.form = form;
        call.weights = WeightType::fp32;
        calls.push_back(call);
      }
    rig.warm_up(calls);
    for (const auto& call : calls) {
      try {
        rig.check(call);
      } catch (const Failure& failure) {
        throw Failure(fmt::format("H {} L {} T {} K {} B {}: {}", shape.hidden, shape.latent, shape.ranks,
                                  shape.top_k, call.batch, failure.what()));
      }
    }
  }
}

}  // namespace

std::vector<Case> front_cases() {
  return {{"front.loopback.t1",
           [](const Gpu& gpu) {
             loopback(gpu, 1, {1, 2, 8, 16, 3, 128});
           }},
          {"front.loopback.t2",
           [](const Gpu& gpu) {
             loopback(gpu, 2, {1, 4, 33, 2});
           }},
          {"front.loopback.t4",
           [](const Gpu& gpu) {
             loopback(gpu, 4, {1, 7, 64, 2});
           }},
          {"front.loopback.t8",
           [](const Gpu& gpu) {
             loopback(gpu, 8, {1, 2, 3, 4, 8, 16, 32, 64, 128, 5, 1, 100, 1});
           }},
          {"front.loopback.t16",
           [](const Gpu& gpu) {
             loopback(gpu, 16, {1, 2, 8, 31, 1, 128});
           }},
          {"front.replay.t8",
           [](const Gpu& gpu) {
             replay(gpu, k3(8), 0, {1, 2, 3, 4, 8, 16, 32, 64, 128});
           }},
          {"front.replay.t8.rank5",
           [](const Gpu& gpu) {
             replay(gpu, k3(8), 5, {1, 8});
           }},
          {"front.replay.t16",
           [](const Gpu& gpu) {
             replay(gpu, k3(16), 3, {1, 8});
           }},
          {"front.replay.t2",
           [](const Gpu& gpu) {
             replay(gpu, k3(2), 1, {1, 8, 32});
           }},
          {"front.replay.t1",
           [](const Gpu& gpu) {
             replay(gpu, k3(1), 0, {1, 8, 16});
           }},
          {"front.replay.t4",
           [](const Gpu& gpu) {
             replay(gpu, k3(4), 1, {1, 8, 64});
           }},
          {"front.replay.tiles",
           [](const Gpu& gpu) {
             // More tokens than a tile has.
             Shape shape = small_shape(4);
             shape.latent = 1536;
             shape.capacity = 160;
             replay(gpu, shape, 2, {160, 1, 130});
           }},
          {"front.forms", forms},
          {"front.odd_shapes", odd_shapes}};
}

}  // namespace moetail::gpu
