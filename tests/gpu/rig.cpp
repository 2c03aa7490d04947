// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/rig.hpp"

#include <algorithm>
#include <cstring>

#include "protocol/sentinel.hpp"
#include "verify/oracle.hpp"

namespace moetail::gpu {
namespace {

using protocol::Region;

template <typename T>
cuda::DeviceMemory to_device(const Gpu& gpu, const std::vector<T>& values) {
  cuda::DeviceMemory memory(gpu.context, std::max<std::size_t>(values.size() * sizeof(T), 16));
  if (!values.empty()) gpu.stream->copy(memory.address(), values.data(), values.size() * sizeof(T));
  gpu.stream->synchronize();
  return memory;
}

}  // namespace

Gpu Gpu::open() {
  Gpu gpu;
  gpu.context = cuda::Context::retain(0);
  gpu.cache = std::make_shared<cuda::KernelCache>();
  gpu.store = std::make_unique<cuda::KernelStore>(gpu.context, gpu.cache);
  gpu.stream = std::make_unique<cuda::Stream>(gpu.context);
  const auto& facts = gpu.context->facts();
  gpu.shape = kernels::device_shape(facts.arch());
  gpu.shape.num_sms = facts.num_sms;
  gpu.shape.shared_per_block = facts.shared_bytes_per_block;
  gpu.shape.shared_per_sm = facts.shared_bytes_per_sm;
  gpu.shape.shared_reserved = facts.reserved_shared_bytes_per_block;
  return gpu;
}

std::size_t Gpu::free_bytes() const {
  const cuda::ContextScope scope(*context);
  std::size_t free = 0, total = 0;
  context->driver().mem_get_info(&free, &total);
  return free;
}

Rig::Rig(const Gpu& gpu, const Shape& shape, World world, u64 seed, int replay_rank, int layers)
    : gpu_(gpu),
      shape_(shape),
      world_(world),
      replay_rank_(replay_rank),
      layout_(protocol::make_layout(shape)) {
  for (int i = 0; i < layers; ++i) {
    auto host = verify::make_layer(shape, seed, i);
    auto w_up = to_device(gpu, host.w_up), gamma = to_device(gpu, host.gamma);
    layers_.push_back({std::move(host), std::move(w_up), std::move(gamma)});
  }
  const int count = world == World::replay ? 1 : shape.ranks;
  for (int i = 0; i < count; ++i) boxes_.emplace_back(gpu.context, layout_);
  for (int i = 0; world == World::streams && i < count; ++i) streams_.emplace_back(gpu.context);
  if (world == World::replay) scratch_ = cuda::DeviceMemory(gpu.context, layout_.total_bytes);
  arm_all();
}

const cuda::Stream& Rig::stream(int rank) const {
  return world_ == World::streams ? streams_[static_cast<std::size_t>(rank)] : *gpu_.stream;
}

const cuda::BoxMemory& Rig::box(int rank) const {
  return boxes_[world_ == World::replay ? 0 : static_cast<std::size_t>(rank)];
}

void Rig::arm_all() {
  for (auto& box : boxes_) box.arm(*gpu_.stream);
  if (scratch_) gpu_.stream->fill(scratch_.address(), 0, scratch_.bytes() / 4);
  gpu_.stream->synchronize();
}

void Rig::synchronize() {
  gpu_.stream->synchronize();
  for (const auto& stream : streams_) stream.synchronize();
}

const u16* Rig::shard(int rank, int layer) const {
  return layers_[static_cast<std::size_t>(layer) % layers_.size()].w_up.as<u16>() +
         static_cast<std::size_t>(rank) * shape_.shard() * shape_.latent;
}

kernels::RankArgs Rig::rank_args(int rank) const {
  kernels::RankArgs args;
  const auto& own = box(rank);
  for (int peer = 0; peer < shape_.ranks; ++peer) {
    if (world_ != World::replay)
      args.peer[peer] = box(peer).device();
    else
      args.peer[peer] = peer == rank ? own.device() : scratch_.as<u8>();
  }
  args.rearm_others = world_ == World::replay ? scratch_.as<u8>() : own.device();
  args.fault = own.fault_cell();
  args.deadline_ns = args.first_deadline_ns = deadline_ns;
  args.rank = rank;
  if (rank == stall.rank) args.stall = kernels::stall_at(static_cast<int>(stall.site), stall.block);
  return args;
}

DeviceInputs Rig::upload(const Call& call) const {
  DeviceInputs inputs;
  verify::InputOptions options;
  options.form = call.form;
  options.weight_type = call.weights;
  options.residual = call.residual;
  options.specials = call.specials;
  inputs.host = verify::make_inputs(shape_, call.batch, call.seed, 0, options);
  if (world_ == World::replay && call.form != Form::partial) {
    // The peers publish partials of their own making.
    options.form = Form::partial;
    auto partials = verify::make_inputs(shape_, call.batch, call.seed + 1000, 0, options);
    for (int r = 0; r < shape_.ranks; ++r) {
      if (r == replay_rank_) continue;
      auto& arrays = inputs.host.arrays[static_cast<std::size_t>(r)];
      arrays.partial = std::move(partials.arrays[static_cast<std::size_t>(r)].partial);
      auto& rank = inputs.host.ranks[static_cast<std::size_t>(r)];
      rank.form = Form::partial;
      rank.partial = arrays.partial.data();
    }
  }
  const cuda::DeviceMemory* residual = nullptr;
  const auto keep = [&](auto& values) {
    inputs.memory.push_back(to_device(gpu_, values));
    return &inputs.memory.back();
  };
  inputs.memory.reserve(static_cast<std::size_t>(shape_.ranks) * 6 + 1);
  if (call.residual) residual = keep(inputs.host.residual);
  for (int r = 0; r < shape_.ranks; ++r) {
    auto& arrays = inputs.host.arrays[static_cast<std::size_t>(r)];
    kernels::CallInputs in;
    in.rows = keep(arrays.rows)->template as<u16>();
    in.map = keep(arrays.map)->template as<protocol::i32>();
    in.weights = call.weights == WeightType::fp32 ? keep(arrays.weights_fp32)->template as<void>()
                                                  : keep(arrays.weights_bf16)->template as<void>();
    in.partial = keep(arrays.partial)->template as<u16>();
    in.shared = keep(arrays.shared)->template as<u16>();
    in.residual = residual != nullptr ? residual->as<u16>() : nullptr;
    in.shard = shard(r, call.layer);
    in.norm = layers_[static_cast<std::size_t>(call.layer) % layers_.size()].gamma.as<u16>();
    in.num_rows = inputs.host.ranks[static_cast<std::size_t>(r)].num_rows;
    in.layer = call.layer;
    inputs.ranks.push_back(in);
  }
  return inputs;
}

void Rig::launch_ranks(const cuda::KernelRequest& request, const DeviceInputs& inputs, int batch, int begin,
                       int end, const u16* shard_copy, const u16* rows_copy) {
  const auto kernel = gpu_.store->get(request, stream(begin));
  std::vector<std::byte> bytes(8 + static_cast<std::size_t>(end - begin) * sizeof(kernels::RankArgs));
  const protocol::i32 count = batch;
  std::memcpy(bytes.data(), &count, sizeof count);
  for (int rank = begin; rank < end; ++rank) {
    auto args = rank_args(rank);
    args.call = inputs.ranks[static_cast<std::size_t>(rank)];
    if (shard_copy != nullptr) args.call.shard = shard_copy;
    if (rows_copy != nullptr) args.call.rows = rows_copy;
    std::memcpy(bytes.data() + 8 + static_cast<std::size_t>(rank - begin) * sizeof args, &args, sizeof args);
  }
  const void* parameter = bytes.data();
  kernel->launch(request.launch, stream(begin), {&parameter, 1});
}

void Rig::launch(const Call& call, const DeviceInputs& inputs, kernels::Kind kind, const u16* shard_copy,
                 const u16* rows_copy) {
  const auto request = gpu_.request_of(kernels::make_plan(plan_request(call, kind), gpu_.shape), defines);
  if (world_ == World::loopback) {
    launch_ranks(request, inputs, call.batch, 0, shape_.ranks, shard_copy, rows_copy);
  } else if (world_ == World::replay) {
    launch_ranks(request, inputs, call.batch, replay_rank_, replay_rank_ + 1, shard_copy, rows_copy);
  } else {
    for (int rank = 0; rank < shape_.ranks; ++rank)
      launch_ranks(request, inputs, call.batch, rank, rank + 1, shard_copy, rows_copy);
  }
}

void Rig::enqueue_rank(const Call& call, const DeviceInputs& inputs, int rank) {
  require(world_ == World::streams, "ranks are launched together in this world");
  for (const auto kind : kinds_of(call))
    launch_ranks(gpu_.request_of(kernels::make_plan(plan_request(call, kind), gpu_.shape), defines), inputs,
                 call.batch, rank, rank + 1, nullptr, nullptr);
}

void Rig::enqueue(const Call& call, const DeviceInputs& inputs, const u16* shard_copy, const u16* rows_copy) {
  for (const auto kind : kinds_of(call)) {
    const bool is_tail = kernels::is_tail(kind);
    launch(call, inputs, kind, is_tail ? shard_copy : nullptr,
           kind == kernels::Kind::wave ? nullptr : rows_copy);
  }
}

std::vector<cuda::DeviceMemory> Rig::make_destinations(int batch) const {
  std::vector<cuda::DeviceMemory> destinations;
  for (int rank = 0; rank < shape_.ranks; ++rank)
    destinations.emplace_back(gpu_.context, static_cast<std::size_t>(batch) * shape_.hidden * 2);
  return destinations;
}

void Rig::consume(const Call& call, const DeviceInputs& inputs,
                  const std::vector<cuda::DeviceMemory>& destinations) {
  DeviceInputs with;
  with.ranks = inputs.ranks;
  for (std::size_t rank = 0; rank < with.ranks.size(); ++rank)
    with.ranks[rank].destination = destinations[rank].as<u16>();
  launch(call, with, kernels::Kind::take);
}

void Rig::require_no_fault() const {
  for (const auto& box : boxes_)
    if (const auto fault = box.fault())
      throw Failure(fmt::format("fault: {} at {}, rank {}, peer {}, token {}, epoch {}",
                                fault_kind_name(fault->kind), site_name(fault->site), fault->rank,
                                fault->peer, fault->token, fault->epoch));
}

std::vector<u16> read_equal_rows(const Gpu& gpu, const std::vector<cuda::DeviceMemory>& destinations,
                                 int batch, int hidden) {
  std::vector<std::vector<u16>> rows;
  for (const auto& destination : destinations) {
    rows.emplace_back(static_cast<std::size_t>(batch) * static_cast<std::size_t>(hidden));
    gpu.stream->copy(rows.back().data(), destination.address(), rows.back().size() * 2);
  }
  gpu.stream->synchronize();
  const std::vector<std::span<const u16>> spans(rows.begin(), rows.end());
  if (rows.size() > 1) {
    const auto report = verify::compare_ranks(spans, hidden);
    require(report.passes(), "ranks differ: {}", report.text());
  }
  return rows.front();
}

std::vector<u16> Rig::equal_rows(const std::vector<cuda::DeviceMemory>& destinations, int batch) {
  return read_equal_rows(gpu_, destinations, batch, shape_.hidden);
}

std::vector<u8> Rig::mailbox(int rank, Region region, int slot, int source, int count) const {
  std::vector<u8> bytes(static_cast<std::size_t>(count) * layout_.row_bytes[static_cast<int>(region)]);
  const auto from = box(rank).device() + layout_.at(region, slot, source, 0);
  gpu_.stream->copy(bytes.data(), reinterpret_cast<cuda::abi::DevicePtr>(from), bytes.size());
  gpu_.stream->synchronize();
  return bytes;
}

std::vector<u16> Rig::take(int rank, int batch) {
  std::vector<u16> rows(static_cast<std::size_t>(batch) * shape_.hidden);
  const auto out =
      reinterpret_cast<cuda::abi::DevicePtr>(box(rank).device() + layout_.at(Region::out, 0, 0, 0));
  stream(rank).copy(rows.data(), out, rows.size() * 2);
  stream(rank).fill(out, protocol::kEmptyWord, rows.size() / 2);
  stream(rank).synchronize();
  return rows;
}

std::vector<u16> Rig::check(const Call& call) {
  return check(call, upload(call));
}

std::vector<u16> Rig::check(const Call& call, const DeviceInputs& inputs) {
  enqueue(call, inputs);
  std::vector<cuda::DeviceMemory> taken;
  if (world_ != World::replay) {
    taken = make_destinations(call.batch);
    consume(call, inputs, taken);
  }
  synchronize();
  require_no_fault();
  const auto rows = world_ == World::replay ? take(replay_rank_, call.batch) : equal_rows(taken, call.batch);
  judge(call, inputs, rows);
  return rows;
}

void Rig::judge(const Call& call, const DeviceInputs& inputs, const std::vector<u16>& rows) const {
  const auto problem =
      verify::make_problem(shape_, call.batch, call.mode == Mode::twoshot, inputs.host, weights(call.layer));
  std::vector<protocol::i32> columns;
  // All columns where that is quick; else every seventh, and in replay the own ones.
  const int step = static_cast<double>(call.batch) * shape_.hidden * shape_.latent > 4e8 ? 7 : 1;
  const int begin = world_ == World::replay ? replay_rank_ * shape_.shard() : 0;
  const int end = world_ == World::replay ? begin + shape_.shard() : shape_.hidden;
  for (int c = begin; c < end; c += step) columns.push_back(c);
  const auto report = verify::check_rows(verify::expect(problem, columns), rows);
  require(report.passes(), "{}", report.text());
  const double limit = call.mode == Mode::twoshot ? 3.5e-3 : 3.0e-3;
  if (shape_.latent == 3584 && !call.residual)
    require(report.error <= limit, "row error {:.2e} beyond {:.1e}", report.error, limit);
}

}  // namespace moetail::gpu
