// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/layers.hpp"

namespace moetail::gpu {

Layers::Layers(const Gpu& gpu, const Rig& rig, const Call& call, const DeviceInputs& inputs, int row_copies)
    : gpu_(gpu),
      row_copies_(row_copies),
      shard_bytes_(static_cast<std::size_t>(rig.shape().shard()) * rig.shape().latent * 2),
      rows_bytes_(static_cast<std::size_t>(call.batch) * rig.shape().top_k * rig.shape().latent * 2),
      weights_(gpu.context, shard_bytes_ * kLayers),
      rows_(gpu.context, rows_bytes_ * static_cast<std::size_t>(row_copies)),
      begin_(gpu.context, cuda::Event::Timing::on),
      end_(gpu.context, cuda::Event::Timing::on) {
  for (int i = 0; i < kLayers; ++i)
    gpu.stream->copy(weights_.address() + i * shard_bytes_, static_cast<const void*>(rig.shard(0)),
                     shard_bytes_);
  for (int i = 0; i < row_copies; ++i)
    gpu.stream->copy(rows_.address() + i * rows_bytes_, static_cast<const void*>(inputs.ranks[0].rows),
                     rows_bytes_);
  gpu.stream->synchronize();
}

cuda::GraphExec Layers::capture(Rig& rig, const Call& call, const DeviceInputs& inputs) const {
  gpu_.stream->begin_capture();
  for (int i = 0; i < kLayers; ++i)
    rig.enqueue(call, inputs, weights_.as<u16>() + i * (shard_bytes_ / 2),
                rows_.as<u16>() + static_cast<std::size_t>(i % row_copies_) * (rows_bytes_ / 2));
  cuda::GraphExec graph(gpu_.stream->end_capture());
  graph.upload(*gpu_.stream);
  return graph;
}

double Layers::replay_us(const cuda::GraphExec& graph) const {
  gpu_.stream->record(begin_);
  graph.launch(*gpu_.stream);
  gpu_.stream->record(end_);
  gpu_.stream->synchronize();
  return cuda::elapsed_us(begin_, end_, *gpu_.context) / kLayers;
}

}  // namespace moetail::gpu
