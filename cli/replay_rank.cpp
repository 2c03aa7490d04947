// SPDX-License-Identifier: Apache-2.0
#include "cli/replay_rank.hpp"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "cli/step_driver.hpp"

namespace moetail::cli {
namespace {

constexpr int kReplayedRank = 0;
constexpr int kJudgedTokens = 16;

std::size_t size_product(int a, int b) {
  return static_cast<std::size_t>(a) * static_cast<std::size_t>(b);
}

}  // namespace

GpuWeights::GpuWeights(const bench::Gpu& gpu, std::span<const LayerWeights> weights) {
  for (const LayerWeights& layer : weights) {
    Layer& one = layers_.emplace_back();
    one.up_proj = gpu.allocate(layer.up_proj.span().size_bytes());
    one.norm = gpu.allocate(layer.norm.span().size_bytes());
    gpu.upload(one.up_proj, 0, layer.up_proj.data(), one.up_proj.bytes());
    gpu.upload(one.norm, 0, layer.norm.data(), one.norm.bytes());
  }
}

template <typename T>
std::span<const T> GpuInputs::upload(const bench::Gpu& gpu, std::span<const T> host) {
  if (host.empty()) return {};
  memory_.push_back(gpu.allocate(host.size_bytes()));
  gpu.upload(memory_.back(), 0, host.data(), host.size_bytes());
  return {memory_.back().as<const T>(), host.size()};
}

int GpuInputs::warm_copies(const bench::Gpu& gpu, const InputSpec& spec) {
  const std::size_t rows = size_product(spec.batch, spec.form == Form::partial ? 1 : spec.shape.top_k);
  const std::size_t bytes = rows * static_cast<std::size_t>(spec.shape.latent) * sizeof(Bf16);
  return 2 * bytes <= gpu.facts().l2_bytes / 4 ? 2 : 1;
}

GpuInputs::GpuInputs(const bench::Gpu& gpu, const Inputs& inputs, int num_copies) {
  const InputSpec& spec = inputs.spec();
  const verify::RankInput& input = inputs.ranks(0)[kReplayedRank];
  const std::size_t row_elements = size_product(spec.batch, spec.shape.hidden);
  Routed host = routed_of(input, spec);
  Routed first = host;
  first.map = upload(gpu, host.map);
  first.weights_bf16 = upload(gpu, host.weights_bf16);
  first.weights_fp32 = upload(gpu, host.weights_fp32);
  for (int copy = 0; copy < num_copies; ++copy) {
    Routed& one = routed_.emplace_back(first);
    one.rows = upload(gpu, host.rows);
    one.partial = upload(gpu, host.partial);
  }
  shared_ = upload(gpu, std::span<const Bf16>(input.shared, row_elements));
  if (input.residual != nullptr) residual_ = upload(gpu, std::span<const Bf16>(input.residual, row_elements));
}

WarmBox WarmBox::make(const Configuration& one, const WorldOptions& options) {
  WorldOptions with_put = options;
  with_put.put = one.put;
  const InputSpec& input = one.input;
  World world = World::replay(kReplayedRank, input.shape.ranks, with_put);
  TailBox box = world.make_boxes(input.shape).front();
  box.warm_up(input.batch, one.mode, input.form, input.weights, input.residual);
  return {std::move(world), std::move(box)};
}

std::vector<LayerWeights> replayed_shards(const RunSetup& setup, std::uint64_t seed, Progress& progress) {
  int rows = 0;
  for (const Configuration& one : setup.configurations) rows = std::max(rows, one.input.shape.shard());
  return synthetic_weights(seed, setup.layers, rows, setup.latent, progress);
}

void WarmResult::make(const WarmOrder& order) noexcept {
  try {
    box_ = WarmBox::make(*order.one, order.options);
  } catch (...) {
    error_ = std::current_exception();
  }
}

WarmBox WarmResult::take() {
  if (error_) std::rethrow_exception(error_);
  WarmBox box = std::move(box_.value());
  box_.reset();
  return box;
}

std::vector<WarmResult> warm_side_by_side(std::span<const WarmOrder> orders) {
  std::vector<WarmResult> results(orders.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < orders.size(); i = next++) results[i].make(orders[i]);
  };
  std::vector<std::thread> threads;
  const std::size_t most = std::max(1u, std::thread::hardware_concurrency());
  for (std::size_t i = 0; i < std::min(most, orders.size()); ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  return results;
}

std::pair<int, int> judged_tokens(std::size_t position, int batch) {
  const int parts = (batch + kJudgedTokens - 1) / kJudgedTokens;
  const int first = static_cast<int>(position % static_cast<std::size_t>(parts)) * kJudgedTokens;
  return {first, std::min(kJudgedTokens, batch - first)};
}

void judge_first_run(Judge& judge, std::span<const Bf16> rows, int num_layers, int batch) {
  const std::size_t size = rows.size() / static_cast<std::size_t>(num_layers);
  for (int i = 0; i < num_layers; ++i) {
    const auto [first, count] = judged_tokens(static_cast<std::size_t>(i), batch);
    judge.compare_with_oracle(rows.subspan(static_cast<std::size_t>(i) * size, size), 0, i, first, count);
  }
}

ReplayRank::ReplayRank(const bench::Gpu& gpu, WarmBox warm, const Configuration& one,
                       const GpuWeights& weights, std::span<const LayerWeights> layers, const Inputs& inputs,
                       const GpuInputs& on_gpu, bool takes)
    : gpu_(gpu),
      warm_(std::move(warm)),
      one_(one),
      inputs_(on_gpu),
      takes_(takes),
      taken_(gpu.allocate(row_elements() * sizeof(Bf16))) {
  const Shape& shape = one.input.shape;
  const std::size_t latent = static_cast<std::size_t>(shape.latent);
  for (std::size_t i = 0; i < weights.num_layers(); ++i)
    tails_.emplace_back(
        warm_.box,
        TailWeights::from_shard(shape, kReplayedRank,
                                {weights.up_proj(i), size_product(shape.shard(), shape.latent)},
                                {weights.norm(i), latent}),
        layers[i].layer);
  fill_peers_of(warm_.box, inputs, one.plan.mode);
}

std::size_t ReplayRank::row_elements() const {
  return size_product(one_.input.batch, one_.input.shape.hidden);
}

OutView ReplayRank::enqueue_tail(std::size_t position) {
  const PreparedTail& tail = tails_[position];
  Call call;
  call.batch = one_.input.batch;
  call.mode = one_.mode;
  call.routed = inputs_.routed(position);
  call.shared = inputs_.shared();
  call.residual = inputs_.residual();
  if (one_.plan.mode == Mode::publish) tail.push(call.shared, call.batch, one_.mode);
  return tail.run(call);
}

std::vector<Bf16> ReplayRank::run_each() {
  std::vector<Bf16> rows(tails_.size() * row_elements());
  const Stream stream = warm_.world.main_stream(kReplayedRank);
  for (std::size_t i = 0; i < tails_.size(); ++i) {
    warm_.box.take(enqueue_tail(i), {taken_.as<Bf16>(), row_elements()});
    stream.copy(rows.data() + i * row_elements(), taken_.as<void>(), taken_.bytes());
  }
  warm_.world.synchronize();
  return rows;
}

double ReplayRank::replay() {
  if (!graph_)
    graph_.emplace(gpu_, [this] {
      for (std::size_t i = 0; i < tails_.size(); ++i) {
        const OutView view = enqueue_tail(i);
        in_place_ = view.data;
        if (takes_)
          warm_.box.take(view, {taken_.as<Bf16>(), row_elements()});
        else
          warm_.box.consumer(view);  // of a consumer that comes to nothing
      }
    });
  return graph_->replay();
}

std::vector<Bf16> ReplayRank::last_rows() {
  warm_.world.synchronize();
  std::vector<Bf16> rows(row_elements());
  gpu_.download(rows.data(), takes_ ? taken_.as<const void>() : static_cast<const void*>(in_place_),
                rows.size() * sizeof(Bf16));
  return rows;
}

void check_traceable(const char* flag, int layers) {
  if (layers > Trace::kDeviceCalls)
    base::bad_argument(
        "--layers", layers,
        fmt::format("at most {} with {}, which keeps that many calls", Trace::kDeviceCalls, flag));
}

std::vector<Bf16> trace_replays(ReplayRank& rank, Trace& trace, int replays, Progress& progress) {
  for (double busy_us = 0; busy_us < kClockUs;) busy_us += rank.replay() + 1;
  rank.last_rows();  // what was recorded until now is collected, and forgotten
  trace.clear();
  progress.begin(fmt::format("{} traced replays", replays), static_cast<std::uint64_t>(replays));
  std::vector<Bf16> last;
  for (int i = 0; i < replays; ++i) {
    rank.replay();
    last = rank.last_rows();
    progress.advance();
  }
  progress.end();
  return last;
}

}  // namespace moetail::cli
