// SPDX-License-Identifier: Apache-2.0
// What an engine's own kernels look like around a tail: experts that publish or fill instead of storing, and a next layer that reads the
// output rows where they lie. Compiles with nvcc, host code too, and with NVRTC, which sees the kernels alone.
#include <moetail/device/consume.cuh>
#include <moetail/device/fill.cuh>
#include <moetail/device/publish.cuh>

namespace dev = moetail::device;

/// The end of the experts in publish and twoshot mode: the top-k rows of a token, [B * K, L], summed by weight, a line of 8 columns a
/// thread. Grid and block are free: threads walk over the lines.
extern "C" __global__ void engine_publish(const __grid_constant__ moetail::PublishTargets targets,
                                          const dev::Line* rows, const float* weights, int top_k) {
  dev::wait_for_predecessor();  // before the first look at epoch, rows and weights
  dev::trigger_dependents();
  const dev::Publisher partial(targets);
  const auto threads = dev::Threads::of_grid();
  for (int i = threads.index; i < partial.batch() * partial.lines(); i += threads.count) {
    const int token = i / partial.lines(), line = i % partial.lines();
    dev::Columns sum{};
    for (int k = 0; k < top_k; ++k) {
      const int route = token * top_k + k;
      const auto row = dev::columns_of(dev::load_weak(rows + route * partial.lines() + line));
      for (int c = 0; c < 8; ++c) sum.value[c] = fmaf(weights[route], row.value[c], sum.value[c]);
    }
    partial.put_line(token, line, sum);
  }
}

/// The same experts in front_poll mode: rows and weights as they are, and the shared experts' partial [B, H]; the tail sums them. A block
/// a route or shared row, in turns. A negative weight says here that the route is dropped.
extern "C" __global__ void engine_fill(const __grid_constant__ moetail::PollSlots slots, const dev::u16* rows,
                                       const float* weights, const dev::u16* shared, int top_k) {
  dev::wait_for_predecessor();
  dev::trigger_dependents();
  const dev::SlotFiller to(slots);
  const auto threads = dev::Threads::of_block();
  const unsigned long latent = static_cast<unsigned long>(to.lines()) * 8,
                      hidden = static_cast<unsigned long>(to.shared_lines()) * 8;
  for (int i = blockIdx.x; i < to.batch() * (top_k + 1); i += gridDim.x) {
    const int token = i / (top_k + 1), k = i % (top_k + 1), route = token * top_k + k;
    if (k == top_k) {
      to.put_shared(token, shared + static_cast<unsigned long>(token) * hidden, threads);
    } else if (weights[route] < 0) {
      if (threads.index == 0) to.drop(token, k);
    } else {
      to.put_route(token, k, rows + static_cast<unsigned long>(route) * latent, weights[route], threads);
    }
  }
}

/// The next layer's first step, which needs no copy of the output rows: hidden [B, H] += out.
extern "C" __global__ void engine_add_output(const __grid_constant__ moetail::OutConsumer consumer,
                                             dev::Line* hidden) {
  dev::wait_for_predecessor();
  dev::trigger_dependents();
  dev::OutReader out(consumer);
  const auto threads = dev::Threads::of_grid();
  for (int i = threads.index; i < out.batch() * out.lines(); i += threads.count) {
    dev::Columns sum = dev::columns_of(dev::load_weak(hidden + i));
    dev::add_line(sum, out.take_line(i / out.lines(), i % out.lines()));  // waits, reads, re-arms
    dev::store_weak(hidden + i, dev::pack_line(sum));
  }
}

#ifndef __CUDACC_RTC__
#include <moetail/moetail.hpp>

/// One layer of one rank: nothing in it waits, and all of it may be captured, once TailBox::warm_up has made the kernels. The buffers are
/// device memory.
void run_layer(const moetail::World& world, const moetail::TailBox& box, const moetail::PreparedTail& tail,
               int batch, const dev::Line* rows, const float* weights, std::span<const moetail::Bf16> shared,
               dev::Line* hidden) {
  const auto stream = static_cast<cudaStream_t>(world.main_stream(box.rank()).native());
  const auto mode = moetail::Mode::publish;
  tail.push(shared, batch, mode, world.side_stream(box.rank()));
  engine_publish<<<64, 256, 0, stream>>>(tail.publish(batch, mode), rows, weights, box.shape().top_k);
  moetail::Call call;
  call.batch = batch;
  call.mode = mode;
  call.routed = moetail::Routed::published();
  const moetail::OutView view = tail.run(call);
  engine_add_output<<<64, 256, 0, stream>>>(box.consumer(view), hidden);
}
#endif
