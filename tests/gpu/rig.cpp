// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/rig.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "protocol/header.hpp"
#include "protocol/numerics.hpp"
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

cuda::KernelRequest Gpu::request_of(const kernels::KernelPlan& plan) const {
  cuda::KernelRequest request;
  request.spec.entry = plan.entry;
  request.spec.source = plan.source;
  request.spec.defines = plan.defines;
  for (const auto& extra : extra_defines) {
    const auto name = extra.substr(0, extra.find('=') + 1);
    std::erase_if(request.spec.defines,
                  [&](const std::string& define) { return define.rfind(name, 0) == 0; });
    request.spec.defines.push_back(extra);
  }
  request.spec.arch = shape.arch;
  request.launch.grid = static_cast<unsigned>(plan.grid);
  request.launch.cluster = static_cast<unsigned>(plan.cluster);
  request.launch.threads = static_cast<unsigned>(plan.threads);
  request.launch.shared_bytes = plan.shared_bytes;
  request.launch.dependent = plan.dependent;
  request.launch.cooperative = plan.cooperative;
  request.budget.max_spill_bytes = 1 << 20;
  return request;
}

std::shared_ptr<const cuda::Kernel> Gpu::kernel(const kernels::KernelPlan& plan) const {
  return store->get(request_of(plan), *stream);
}

Rig::Rig(const Gpu& gpu, const Shape& shape, World world, u64 seed, int replay_rank)
    : gpu_(gpu),
      shape_(shape),
      world_(world),
      replay_rank_(replay_rank),
      layout_(protocol::make_layout(shape)),
      weights_(verify::make_layer(shape, seed, 0)),
      w_up_(to_device(gpu, weights_.w_up)),
      gamma_(to_device(gpu, weights_.gamma)) {
  const int count = world == World::loopback ? shape.ranks : 1;
  for (int i = 0; i < count; ++i) boxes_.emplace_back(gpu.context, layout_);
  if (world == World::replay) scratch_ = cuda::DeviceMemory(gpu.context, layout_.total_bytes);
  arm_all();
}

void Rig::arm_all() {
  for (auto& box : boxes_) box.arm(*gpu_.stream);
  if (scratch_) gpu_.stream->fill(scratch_.address(), 0, scratch_.bytes() / 4);
  gpu_.stream->synchronize();
}

const u16* Rig::shard(int rank) const {
  return w_up_.as<u16>() + static_cast<std::size_t>(rank) * shape_.shard() * shape_.latent;
}

kernels::PlanRequest Rig::plan_request(const Call& call, kernels::Kind kind) const {
  kernels::PlanRequest request;
  request.shape = shape_;
  request.kind = kind;
  request.batch = call.batch;
  request.mode = call.mode;
  // What a tail does not read is not part of its kernel.
  const bool reads_rows = kind == kernels::Kind::publish || kind == kernels::Kind::fill ||
                          (kind == kernels::Kind::front && call.mode == Mode::front);
  request.form = reads_rows ? call.form : Form::published;
  request.weights = reads_rows ? call.weights : WeightType::bf16;
  request.pushes = kind == kernels::Kind::publish && call.pushes;
  request.residual = call.residual;
  request.shares_reduced = call.shares_reduced;
  request.polls_shared = call.mode == Mode::front_poll;
  request.put = call.put;
  request.launch_ranks = world_ == World::loopback ? shape_.ranks : 1;
  request.trigger = call.trigger;
  return request;
}

kernels::RankArgs Rig::rank_args(int rank) const {
  kernels::RankArgs args;
  const auto& own = boxes_[world_ == World::loopback ? static_cast<std::size_t>(rank) : 0];
  for (int peer = 0; peer < shape_.ranks; ++peer) {
    if (world_ == World::loopback)
      args.peer[peer] = boxes_[static_cast<std::size_t>(peer)].device();
    else
      args.peer[peer] = peer == rank ? own.device() : scratch_.as<u8>();
  }
  args.rearm_others = world_ == World::loopback ? own.device() : scratch_.as<u8>();
  args.fault = own.fault_cell();
  args.deadline_ns = args.first_deadline_ns = deadline_ns;
  args.rank = rank;
  return args;
}

DeviceInputs Rig::upload(const Call& call) const {
  DeviceInputs inputs;
  verify::InputOptions options;
  options.form = call.form;
  options.weight_type = call.weights;
  options.residual = call.residual;
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
    in.shard = shard(r);
    in.norm = gamma_.as<u16>();
    in.num_rows = inputs.host.ranks[static_cast<std::size_t>(r)].num_rows;
    in.layer = call.layer;
    inputs.ranks.push_back(in);
  }
  return inputs;
}

void Rig::fill_peers(const Call& call, const DeviceInputs& inputs) {
  const auto& box = boxes_.front();
  const protocol::Header header{static_cast<protocol::u32>(call.batch), static_cast<protocol::u32>(call.mode),
                                0,
                                protocol::hash_shape(shape_, __builtin_bit_cast(protocol::u32, shape_.eps))};
  const u64 word = protocol::pack_header(header);
  const auto at = [&](Region region, int slot, int source, int row) {
    return reinterpret_cast<cuda::abi::DevicePtr>(box.device() + layout_.at(region, slot, source, row));
  };
  const auto shard = static_cast<std::size_t>(shape_.shard());
  if (call.mode == Mode::twoshot) fill_chunks(call, inputs);
  for (int r = 0; r < shape_.ranks; ++r) {
    if (r == replay_rank_) continue;
    const auto& arrays = inputs.host.arrays[static_cast<std::size_t>(r)];
    std::vector<u16> shards;
    for (int b = 0; b < call.batch; ++b) {
      const u16* row =
          arrays.shared.data() + static_cast<std::size_t>(b) * shape_.hidden + replay_rank_ * shard;
      shards.insert(shards.end(), row, row + shard);
    }
    for (int slot = 0; slot < protocol::kSlots; ++slot) {
      if (call.mode != Mode::twoshot)
        gpu_.stream->copy(at(Region::latent, slot, r, 0), arrays.partial.data(), arrays.partial.size() * 2);
      gpu_.stream->copy(at(Region::shared, slot, r, 0), shards.data(), shards.size() * 2);
      gpu_.stream->copy(at(Region::header, slot, r, 0), &word, 8);
    }
    gpu_.stream->synchronize();
  }
}

void Rig::fill_chunks(const Call& call, const DeviceInputs& inputs) {
  const auto& box = boxes_.front();
  const auto latent = static_cast<std::size_t>(shape_.latent),
             chunk = static_cast<std::size_t>(shape_.chunk());
  std::vector<float> sum(static_cast<std::size_t>(call.batch) * latent);
  const auto at = [&](Region region, int slot, int source, int row) {
    return reinterpret_cast<cuda::abi::DevicePtr>(box.device() + layout_.at(region, slot, source, row));
  };
  for (int r = 0; r < shape_.ranks; ++r) {
    const auto partial = partial_of(call, inputs, r);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      const float addend = protocol::f32_from_bf16(partial[i]);
      sum[i] = r == 0 ? addend : sum[i] + addend;
    }
    for (int slot = 0; r != replay_rank_ && slot < protocol::kSlots; ++slot)
      for (int b = 0; b < call.batch; ++b)
        gpu_.stream->copy(at(Region::recv, slot, r, b),
                          partial.data() + static_cast<std::size_t>(b) * latent +
                              static_cast<std::size_t>(replay_rank_) * chunk,
                          chunk * 2);
    gpu_.stream->synchronize();
  }
  std::vector<u16> rounded(sum.size());
  for (std::size_t i = 0; i < sum.size(); ++i) rounded[i] = protocol::bf16_from_f32(sum[i]);
  for (int slot = 0; slot < protocol::kSlots; ++slot)
    for (int b = 0; b < call.batch; ++b)
      for (int owner = 0; owner < shape_.ranks; ++owner) {
        if (owner == replay_rank_) continue;
        const std::size_t column = static_cast<std::size_t>(owner) * chunk;
        gpu_.stream->copy(at(Region::gather, slot, 0, b) + column * 2,
                          rounded.data() + static_cast<std::size_t>(b) * latent + column, chunk * 2);
      }
  gpu_.stream->synchronize();
}

void Rig::launch(const Call& call, const DeviceInputs& inputs, kernels::Kind kind, const u16* shard_copy,
                 const u16* rows_copy) {
  const auto plan = kernels::make_plan(plan_request(call, kind), gpu_.shape);
  const auto kernel = gpu_.kernel(plan);
  const int count = world_ == World::loopback ? shape_.ranks : 1;
  std::vector<std::byte> bytes(8 + static_cast<std::size_t>(count) * sizeof(kernels::RankArgs));
  const protocol::i32 batch = call.batch;
  std::memcpy(bytes.data(), &batch, sizeof batch);
  for (int i = 0; i < count; ++i) {
    const int rank = world_ == World::loopback ? i : replay_rank_;
    auto args = rank_args(rank);
    args.call = inputs.ranks[static_cast<std::size_t>(rank)];
    if (shard_copy != nullptr) args.call.shard = shard_copy;
    if (rows_copy != nullptr) args.call.rows = rows_copy;
    std::memcpy(bytes.data() + 8 + static_cast<std::size_t>(i) * sizeof args, &args, sizeof args);
  }
  const void* parameter = bytes.data();
  kernel->launch(gpu_.request_of(plan).launch, *gpu_.stream, {&parameter, 1});
}

void Rig::enqueue(const Call& call, const DeviceInputs& inputs, const u16* shard_copy, const u16* rows_copy) {
  using kernels::Kind;
  if (call.mode == Mode::front_poll) launch(call, inputs, Kind::fill, nullptr, rows_copy);
  if (call.mode == Mode::front || call.mode == Mode::front_poll) {
    launch(call, inputs, Kind::front, shard_copy, rows_copy);
    return;
  }
  if (!call.pushes) launch(call, inputs, Kind::push);
  launch(call, inputs, Kind::publish, nullptr, rows_copy);
  launch(call, inputs, Kind::wave, shard_copy);
}

std::vector<u16> Rig::partial_of(const Call& call, const DeviceInputs& inputs, int rank) const {
  const auto& input = inputs.host.ranks[static_cast<std::size_t>(rank)];
  const auto latent = static_cast<std::size_t>(shape_.latent);
  std::vector<u16> rows(static_cast<std::size_t>(call.batch) * latent);
  if (input.form == Form::partial) {
    rows.assign(input.partial, input.partial + rows.size());
    return rows;
  }
  for (int b = 0; b < call.batch; ++b)
    for (std::size_t c = 0; c < latent; ++c) {
      float group[4] = {};
      for (int g = 0; g < 4; ++g)
        for (int k = protocol::finalize_group_begin(g, shape_.top_k);
             k < protocol::finalize_group_begin(g + 1, shape_.top_k); ++k)
          if (const u16* row = verify::route_row(input, shape_, b, k))
            group[g] = std::fma(verify::route_weight(input, b, k), protocol::f32_from_bf16(row[c]), group[g]);
      rows[static_cast<std::size_t>(b) * latent + c] =
          protocol::bf16_from_f32(protocol::finalize_join(group[0], group[1], group[2], group[3]));
    }
  return rows;
}

std::vector<u16> Rig::take(int rank, int batch) {
  const auto& box = boxes_[world_ == World::loopback ? static_cast<std::size_t>(rank) : 0];
  std::vector<u16> rows(static_cast<std::size_t>(batch) * shape_.hidden);
  const auto out = reinterpret_cast<cuda::abi::DevicePtr>(box.device() + layout_.at(Region::out, 0, 0, 0));
  gpu_.stream->copy(rows.data(), out, rows.size() * 2);
  gpu_.stream->fill(out, protocol::kEmptyWord, rows.size() / 2);
  gpu_.stream->synchronize();
  return rows;
}

std::vector<u16> Rig::check(const Call& call) {
  return check(call, upload(call));
}

std::vector<u16> Rig::check(const Call& call, const DeviceInputs& inputs) {
  enqueue(call, inputs);
  std::vector<cuda::DeviceMemory> taken;
  if (world_ == World::loopback) {
    auto destinations = inputs.ranks;
    DeviceInputs with;
    for (auto& rank : destinations) {
      taken.emplace_back(gpu_.context, static_cast<std::size_t>(call.batch) * shape_.hidden * 2);
      rank.destination = taken.back().as<u16>();
    }
    with.ranks = destinations;
    launch(call, with, kernels::Kind::take);
  }
  gpu_.stream->synchronize();
  for (auto& box : boxes_)
    if (const auto fault = box.fault())
      throw Failure(fmt::format("fault: {} at {}, rank {}, peer {}, token {}, epoch {}",
                                fault_kind_name(fault->kind), site_name(fault->site), fault->rank,
                                fault->peer, fault->token, fault->epoch));
  std::vector<std::vector<u16>> rows;
  const int count = world_ == World::loopback ? shape_.ranks : 1;
  for (int r = 0; r < count; ++r) {
    if (world_ == World::replay) {
      rows.push_back(take(r, call.batch));
      continue;
    }
    rows.emplace_back(static_cast<std::size_t>(call.batch) * shape_.hidden);
    gpu_.stream->copy(rows.back().data(), taken[static_cast<std::size_t>(r)].address(),
                      rows.back().size() * 2);
  }
  gpu_.stream->synchronize();
  if (count > 1) {
    const std::vector<std::span<const u16>> spans(rows.begin(), rows.end());
    const auto report = verify::compare_ranks(spans, shape_.hidden);
    require(report.passes(), "ranks differ: {}", report.text());
  }
  const auto problem =
      verify::make_problem(shape_, call.batch, call.mode == Mode::twoshot, inputs.host, weights_);
  std::vector<protocol::i32> columns;
  // All columns where that is quick; else every seventh, and in replay the own ones.
  const int step = static_cast<double>(call.batch) * shape_.hidden * shape_.latent > 4e8 ? 7 : 1;
  const int begin = world_ == World::loopback ? 0 : replay_rank_ * shape_.shard();
  const int end = world_ == World::loopback ? shape_.hidden : begin + shape_.shard();
  for (int c = begin; c < end; c += step) columns.push_back(c);
  const auto report = verify::check_rows(verify::expect(problem, columns), rows.front());
  require(report.passes(), "{}", report.text());
  const double limit = call.mode == Mode::twoshot ? 3.5e-3 : 3.0e-3;
  if (shape_.latent == 3584 && !call.residual)
    require(report.error <= limit, "row error {:.2e} beyond {:.1e}", report.error, limit);
  return rows.front();
}

}  // namespace moetail::gpu
