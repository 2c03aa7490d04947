// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/door.hpp"

#include <numeric>

#include "engine/group.hpp"
#include "protocol/numerics.hpp"
#include "protocol/sentinel.hpp"
#include "runtime/impl.hpp"
#include "verify/exact.hpp"
#include "verify/oracle.hpp"

// The file itself, in the program: it may run where there is no source tree.
asm(R"(
.section .rodata
.global moetail_example_begin
.global moetail_example_end
moetail_example_begin:
.incbin ")" MOETAIL_EXAMPLE_KERNELS R"("
moetail_example_end:
.byte 0
.previous
)");
extern "C" const char moetail_example_begin[], moetail_example_end[];

namespace moetail::gpu {
namespace {

std::size_t size_of(int value) {
  return static_cast<std::size_t>(value);
}

template <typename T>
cuda::DeviceMemory to_device(const Gpu& gpu, const std::vector<T>& values) {
  cuda::DeviceMemory memory(gpu.context, std::max<std::size_t>(values.size() * sizeof(T), 16));
  if (!values.empty()) gpu.stream->copy(memory.address(), values.data(), values.size() * sizeof(T));
  gpu.stream->synchronize();
  return memory;
}

template <typename T>
std::span<const T> span_of(const cuda::DeviceMemory& memory, std::size_t count) {
  return {memory.as<const T>(), count};
}

}  // namespace

std::string example_kernels() {
  return {moetail_example_begin, moetail_example_end};
}

Door::Door(const Gpu& gpu, const Shape& shape, ::moetail::World world_in, int layers, u64 seed)
    : world(std::move(world_in)), boxes(world.make_boxes(shape)), gpu_(gpu), shape_(shape) {
  for (int i = 0; i < layers; ++i) {
    auto host = verify::make_layer(shape, seed, i);
    auto w_up = to_device(gpu, host.w_up), gamma = to_device(gpu, host.gamma);
    layers_.push_back({std::move(host), std::move(w_up), std::move(gamma)});
    const auto& made = layers_.back();
    for (int rank = 0; rank < num_ranks(); ++rank)
      tails_.emplace_back(
          boxes[size_of(rank)],
          TailWeights::from_full(shape, group_rank(rank), span_of<u16>(made.w_up, made.host.w_up.size()),
                                 span_of<u16>(made.gamma, made.host.gamma.size())),
          is_replay() ? 0 : i + 1);
  }
}

PreparedTail& Door::tail(int layer, int rank) {
  return tails_[size_of(layer) * size_of(num_ranks()) + size_of(rank)];
}

cuda::Stream Door::native(int rank) const {
  return cuda::Stream::borrow(gpu_.context,
                              static_cast<cuda::abi::Stream>(world.main_stream(group_rank(rank)).native()));
}

DoorInputs Door::make_inputs(int batch, u64 seed, bool drops) const {
  DoorInputs inputs;
  inputs.batch = batch;
  verify::InputOptions options;
  options.form = Form::permuted;
  options.dropped_share = drops ? 0.125 : 0;
  inputs.host = verify::make_inputs(shape_, batch, seed, 0, options);
  const auto latent = size_of(shape_.latent), routes = size_of(batch) * size_of(shape_.top_k);
  for (const auto& arrays : inputs.host.arrays) {
    inputs.map.push_back(to_device(gpu_, arrays.map));
    inputs.shared.push_back(to_device(gpu_, arrays.shared));
    // The permuted rows come first, the expanded ones behind them; so do the weights.
    std::vector<u16> rows = arrays.rows;
    std::vector<float> weights = arrays.weights_fp32;
    for (std::size_t route = 0; route < routes; ++route) {
      const int row = arrays.map[route];
      weights.push_back(row < 0 ? -1.0f : arrays.weights_fp32[route]);
      const std::size_t from = size_of(std::max(row, 0)) * latent;
      rows.insert(rows.end(), arrays.rows.begin() + static_cast<std::ptrdiff_t>(from),
                  arrays.rows.begin() + static_cast<std::ptrdiff_t>(from + latent));
    }
    inputs.rows.push_back(to_device(gpu_, rows));
    inputs.weights.push_back(to_device(gpu_, weights));
  }
  return inputs;
}

void Door::fill_peers(const DoorInputs& inputs, Mode mode) const {
  const auto rows = size_of(inputs.batch);
  verify::Problem problem;
  problem.shape = shape_;
  problem.batch = inputs.batch;
  problem.ranks = inputs.host.ranks;
  problem.w_up = problem.gamma = inputs.host.ranks.front().shared;  // must be there, and are not read here
  const auto partials = verify::exact_partials(problem);
  std::vector<SentRows> sent;
  for (std::size_t rank = 0; rank < size_of(shape_.ranks); ++rank)
    sent.push_back(
        {std::span(partials).subspan(rank * rows * size_of(shape_.latent), rows * size_of(shape_.latent)),
         {inputs.host.ranks[rank].shared, rows * size_of(shape_.hidden)}});
  boxes.front().fill_peers(inputs.batch, mode, sent);
}

Routed Door::routed(const DoorInputs& inputs, int rank, Form form) const {
  const auto own = size_of(group_rank(rank));
  const auto& arrays = inputs.host.arrays[own];
  const std::size_t routes = size_of(inputs.batch) * size_of(shape_.top_k), latent = size_of(shape_.latent);
  const std::span rows(inputs.rows[own].as<const u16>(), arrays.rows.size());
  const std::span weights(inputs.weights[own].as<const float>(), routes);
  if (form == Form::permuted)
    return Routed::permuted(rows, span_of<std::int32_t>(inputs.map[own], routes), weights);
  return Routed::expanded(std::span(rows.data() + rows.size(), routes * latent),
                          std::span(weights.data() + routes, routes));
}

std::span<const Bf16> Door::shared(const DoorInputs& inputs, int rank) const {
  return span_of<u16>(inputs.shared[size_of(group_rank(rank))],
                      size_of(inputs.batch) * size_of(shape_.hidden));
}

void Door::call(int layer, const DoorInputs& inputs, Mode mode, const std::vector<cuda::DeviceMemory>& to,
                Form form) {
  std::vector<RankCall> calls;
  for (int rank = 0; rank < num_ranks(); ++rank) {
    PreparedTail& own = tail(layer, rank);
    own.push(shared(inputs, rank), inputs.batch, mode, world.side_stream(group_rank(rank)));
    ::moetail::Call call;
    call.batch = inputs.batch;
    call.mode = mode;
    call.routed = routed(inputs, rank, form);
    calls.push_back({&own, call});
  }
  const auto views = world.run(calls);
  for (std::size_t rank = 0; rank < views.size(); ++rank)
    boxes[rank].take(views[rank], {to[rank].as<u16>(), size_of(inputs.batch) * size_of(shape_.hidden)});
}

std::vector<cuda::DeviceMemory> Door::make_rows(int batch) const {
  std::vector<cuda::DeviceMemory> rows;
  for (int rank = 0; rank < num_ranks(); ++rank) {
    rows.emplace_back(gpu_.context, size_of(batch) * size_of(shape_.hidden) * 2);
    gpu_.stream->fill(rows.back().address(), 0, rows.back().bytes() / 4);
  }
  gpu_.stream->synchronize();
  return rows;
}

std::vector<u16> Door::read(const std::vector<cuda::DeviceMemory>& rows, int batch) const {
  return read_equal_rows(gpu_, rows, batch, shape_.hidden);
}

void Door::judge(int layer, const DoorInputs& inputs, Mode mode, const std::vector<u16>& rows) const {
  const auto problem = verify::make_problem(shape_, inputs.batch, mode == Mode::twoshot, inputs.host,
                                            layers_[size_of(layer)].host);
  std::vector<protocol::i32> columns(size_of(is_replay() ? shape_.shard() : shape_.hidden));
  std::iota(columns.begin(), columns.end(), is_replay() ? group_rank(0) * shape_.shard() : 0);
  const auto report = verify::check_rows(verify::expect(problem, columns), rows);
  require(report.passes(), "{}", report.text());
}

void Door::require_armed(int batch) const {
  for (const auto& box : boxes) {
    const auto& view = box.impl()->box->view();
    std::vector<protocol::u32> words(size_of(batch) * size_of(shape_.hidden) / 2);
    gpu_.stream->copy(words.data(), static_cast<const void*>(view.mine<void>(protocol::Region::out, 0, 0, 0)),
                      words.size() * 4);
    gpu_.stream->synchronize();
    const int shard = shape_.shard() / 2;  // words
    for (std::size_t i = 0; i < words.size(); ++i) {
      const int owner = static_cast<int>(i % size_of(shape_.hidden / 2)) / shard;
      if (is_replay() && owner != view.rank) continue;
      require(words[i] == protocol::kEmptyWord, "rank {}: output word {} is not re-armed: {:#x}", view.rank,
              i, words[i]);
    }
  }
}

}  // namespace moetail::gpu
